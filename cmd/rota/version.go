package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/protocol/table"
)

func newVersion() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version, the commit and the version of Go. -o json and -o yaml add the supported table formats and
the versions of libraries. Fields are added, but never renamed. Unknown values are left out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionOf(debug.ReadBuildInfo())
			if done, err := out.data(cmd.OutOrStdout(), v); done {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v)
			return err
		},
	}
	out.bind(cmd, "table", "json", "yaml")
	return cmd
}

// buildVersion describes this program's build.
type buildVersion struct {
	// Version is the module's version, or "(devel)" if it was built from a checkout without VCS information.
	Version string `json:"version"`
	// Commit and Date describe the checkout's commit; Date is in RFC 3339. They are empty if unknown, for example if the
	// source came from the module proxy. Modified is true if the checkout had changes.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	// Platform is GOOS/GOARCH.
	Platform     string       `json:"platform"`
	TableFormats tableFormats `json:"tableFormats"`
	// Libraries maps the modules that talk to API servers to their versions.
	Libraries map[string]string `json:"libraries"`
}

// tableFormats are the table formats that this program reads.
type tableFormats struct {
	Oldest int `json:"oldest"`
	Newest int `json:"newest"`
}

// libraries are the modules whose versions determine which API servers the program can talk to.
var libraries = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}

func (v buildVersion) String() string {
	words := []string{v.Version}
	if v.Commit != "" {
		words = append(words, v.Commit)
	}
	if v.Modified {
		words = append(words, "(modified)")
	}
	return strings.Join(append(words, v.Go), " ")
}

// versionOf extracts the version from the program's build information.
func versionOf(info *debug.BuildInfo, ok bool) buildVersion {
	v := buildVersion{
		Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		TableFormats: tableFormats{table.OldestFormat, table.Format}, Libraries: map[string]string{},
	}
	if !ok {
		return v
	}
	v.Version, v.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	modules := map[string]*debug.Module{}
	for _, m := range info.Deps {
		modules[m.Path] = m
	}
	for _, path := range libraries {
		m := modules[path]
		if m != nil && m.Replace != nil {
			m = m.Replace
		}
		if m != nil {
			v.Libraries[path] = m.Version
		}
	}
	return v
}
