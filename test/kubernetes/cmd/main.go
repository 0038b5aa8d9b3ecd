// Command cmd tries Rota on versions of Kubernetes, and writes docs/kubernetes.md. `make check WHAT=kubernetes` runs
// it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/kubernetes"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	root, err := build.Root()
	if err != nil {
		return err
	}
	all, _, err := build.Versions()
	if err != nil {
		return err
	}
	versions := flag.String("versions", strings.Join(all, ","), "minor versions to try")
	objects := flag.Int("objects", 300, "number of Websites of the demo")
	page := flag.String("page", filepath.Join(root, "docs", "kubernetes.md"), "page to write the results into")
	records := flag.String("records", filepath.Join(root, "test", "kubernetes", "records"), "folder of the results")
	parts := flag.String("parts", strings.Join(kubernetes.Parts, ","), "what to do; the records keep the rest")
	only := flag.Bool("write", false, "only write the page, from the results that there are")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	var failed []string
	if !*only {
		before, err := kubernetes.Read(*records)
		if err != nil {
			return err
		}
		for _, minor := range strings.Split(*versions, ",") {
			o := kubernetes.Options{Minor: minor, Parts: strings.Split(*parts, ","), Objects: *objects, Progress: os.Stderr,
				Log: filepath.Join(root, "bin", "kubernetes-"+minor+".log")}
			if i := slices.IndexFunc(before, func(r kubernetes.Record) bool { return r.Minor == minor }); i >= 0 {
				o.Before = &before[i]
			}
			r, err := kubernetes.Try(ctx, o)
			if err != nil {
				return err
			}
			for _, text := range r.Failures() {
				failed = append(failed, minor+": "+text)
			}
			if err := r.Write(*records); err != nil {
				return err
			}
		}
	}
	if err := write(*page, *records); err != nil {
		return err
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}

func write(page, folder string) error {
	records, err := kubernetes.Read(folder)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	filled, err := kubernetes.Fill(string(text), records)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(filled), 0o644)
}
