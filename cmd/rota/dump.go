package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/internal/cli/dump"
	"github.com/rota-dev/rota/internal/cli/view"
)

const (
	// dumpTimeout bounds all requests of `rota dump` together.
	dumpTimeout = 5 * time.Minute
	// maxLogBytes bounds the log of one container.
	maxLogBytes = 2 << 20
)

type dumpOptions struct {
	target rotaFlags
	file   string
	noLogs bool
}

func newDump() *cobra.Command {
	o := &dumpOptions{}
	cmd := &cobra.Command{
		Use:   "dump [NAME]",
		Short: "Write a support archive without Secrets",
		Long: `Writes a tar.gz with the output of rota status and rota check, the table, Leases, reports, fence, events, Pods,
ReplicaSets, metrics and the end of the logs. Its README.txt lists what could not be read.

It leaves out Secrets and the values of environment variables, arguments, volumes and annotations. Logs, metrics and
events are unchanged: review them before you share the archive, or use --no-logs.`,
		Example: `  rota dump website -n operators
  rota dump website -n operators -f - | tar tz`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	cmd.Flags().StringVarP(&o.file, "file", "f", "",
		`the archive's name; "-" is standard output (default rota-NAMESPACE-NAME-TIME.tar.gz)`)
	cmd.Flags().BoolVar(&o.noLogs, "no-logs", false, "leave out logs and termination messages")
	return cmd
}

func (o *dumpOptions) run(cmd *cobra.Command, args []string) (err error) {
	cfg, rota, err := o.target.loadRota(cmd.Context(), args)
	if err != nil {
		return err
	}
	now := time.Now()
	dir := fmt.Sprintf("rota-%s-%s-%s", rota.Namespace, rota.Name, now.UTC().Format("20060102T150405Z"))
	name, w := o.file, cmd.OutOrStdout()
	if name == "" {
		name = dir + ".tar.gz"
	}
	if name != "-" {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return usagef("dump: --file: %w", err)
		}
		w = file
		defer func() {
			if closeErr := file.Close(); err == nil {
				err = closeErr
			}
		}()
	}
	unread, err := o.write(cmd.Context(), w, cfg, rota, dir, now)
	if err != nil {
		if name != "-" {
			_ = os.Remove(name)
		}
		return fmt.Errorf("rota %s: %w", rota, err)
	}
	for _, u := range unread {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: not in the archive: %s\n", u)
	}
	if name != "-" {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), name)
	}
	return nil
}

// write writes the archive. It fails if nothing of the rota exists, or nothing could be read.
func (o *dumpOptions) write(ctx context.Context, w io.Writer, cfg *rest.Config, rota types.NamespacedName, dir string,
	now time.Time,
) ([]dump.Unread, error) {
	limited, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	a := dump.NewArchive(w, dir, now)
	r, statusErr := view.Read(limited, cfg, rota.Namespace, rota.Name)
	found := dump.Collect(limited, client, dump.Options{Rota: rota, Logs: !o.noLogs, LogBytes: maxLogBytes}, a)
	if err := ctx.Err(); err != nil { // after dumpTimeout it still writes what it has read
		return nil, err
	}
	if !found {
		// The table's error is the most useful one.
		for _, u := range a.Unread() {
			if code := codeOf(u.Err); code == exitForbidden || code == exitUnreachable {
				return nil, u.Err
			}
		}
		return nil, missingf("there is no ConfigMap or Lease of that name: nothing to archive")
	}
	a.Fail("status", statusErr)
	if statusErr == nil {
		addStatus(a, r)
	}
	checked, err := check.Run(limited, cfg, check.Options{Rota: rota})
	a.Fail("check", err)
	if err == nil {
		addText(a, "check.txt", func(w io.Writer) error { return printCheck(w, paint{}, checked) })
	}
	err = a.Close(fmt.Sprintf("Rota %s, read at %s by `rota dump` %s.", rota, now.UTC().Format(time.RFC3339),
		versionOf(debug.ReadBuildInfo()).String()))
	return slices.Clone(a.Unread()), err
}

// addStatus adds the output of `rota status`, as JSON and as text.
func addStatus(a *dump.Archive, r *view.Rota) {
	data, err := json.MarshalIndent(r, "", "  ")
	a.Fail("status.json", err)
	a.Add("status.json", append(data, '\n'))
	addText(a, "status.txt", func(w io.Writer) error { return printStatus(w, paint{}, r, true) })
}

func addText(a *dump.Archive, name string, write func(io.Writer) error) {
	var text strings.Builder
	a.Fail(name, write(&text))
	a.Add(name, []byte(text.String()))
}
