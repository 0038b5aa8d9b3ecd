package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// output is the flag -o.
type output struct{ format string }

var outputFormats = []string{"table", "wide", "json", "yaml", "name"}

// bind adds the flag. formats are the command's formats, if they differ from the default.
func (o *output) bind(cmd *cobra.Command, formats ...string) {
	if len(formats) == 0 {
		formats = outputFormats
	}
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "one of "+strings.Join(formats, "|"))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	inner := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, o.format) {
			return fmt.Errorf("--output %s: must be one of %s", o.format, strings.Join(formats, ", "))
		}
		if inner != nil {
			return inner(cmd, args)
		}
		return nil
	}
}

// data prints v if the format is for programs. done is true if it did.
func (o *output) data(w io.Writer, v any) (done bool, err error) {
	var text []byte
	switch o.format {
	case "json":
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(v)
	default:
		return false, nil
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return true, err
}

func (o *output) wide() bool { return o.format == "wide" }

// age returns the time since at as kubectl formats it. If clocks differ, at may be in the future.
func age(at, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(at))) }

// seconds formats a number of seconds, with milliseconds below 10.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d.Abs() < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// orDash returns "-" for nil.
func orDash[T any](v *T, text func(T) string) string {
	if v == nil {
		return "-"
	}
	return text(*v)
}
