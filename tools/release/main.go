// Command release makes the parts of a release that GoReleaser and Helm do not:
//
//	rota-release images DIST TAG          images of the binaries in GoReleaser's folder, as OCI layouts
//	rota-release sbom ARTIFACT DOCUMENT   what is in an archive, by syft, in SPDX, the same each time
//	rota-release notices CHECKOUT         the licenses of the modules that the binaries link
//	rota-release artifacthub REF FILE     put Artifact Hub's metadata beside a chart in a registry
//
// All but the last need no network. Times are SOURCE_DATE_EPOCH's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rota-release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("give a command: images, sbom, notices or artifacthub")
	}
	command, args := args[0], args[1:]
	want := map[string]int{"images": 2, "sbom": 2, "notices": 1, "artifacthub": 2}
	if n, ok := want[command]; !ok || len(args) != n {
		return fmt.Errorf("%s with %d arguments: the package's documentation lists the commands", command, len(args))
	}
	switch command {
	case "images":
		return writeImages(ctx, args[0], args[1])
	case "sbom":
		return writeSBOM(ctx, args[0], args[1])
	case "notices":
		return writeNotices(ctx, os.Stdout, args[0])
	default:
		return pushHubMetadata(ctx, args[0], args[1])
	}
}

// epoch is the time of everything: that of the commit.
func epoch() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be the commit's time, in seconds: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
