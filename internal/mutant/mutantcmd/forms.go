package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// forms are the forms of output.
var forms = map[string]func(io.Writer, []tool, []row){"text": text, "json": asJSON, "markdown": markdown}

// chaos is the column of a check that runs real processes, and fills it in by itself.
const chaos = "chaos"

func cell(r result) string {
	switch r.Verdict {
	case Caught:
		return fmt.Sprintf("%s (%.1f s)", r.Found, r.Seconds)
	case Crashed:
		return "crashed: " + r.Found
	case Survived:
		return "–"
	case Unreached, Skipped:
	}
	return ""
}

func text(to io.Writer, tools []tool, rows []row) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "MUTANT")
	for _, t := range tools {
		fmt.Fprint(w, "\t", t.name)
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprint(w, r.Mutant)
		for _, t := range tools {
			fmt.Fprint(w, "\t", cell(r.Results[t.name]))
		}
		fmt.Fprintln(w)
	}
}

func markdown(to io.Writer, tools []tool, rows []row) {
	fmt.Fprint(to, "| mutant | what goes wrong |")
	for _, t := range tools {
		fmt.Fprintf(to, " %s |", t.name)
	}
	fmt.Fprintf(to, " %s |\n| --- | --- |", chaos)
	for range len(tools) + 1 {
		fmt.Fprint(to, " --- |")
	}
	fmt.Fprintln(to)
	for _, r := range rows {
		fmt.Fprintf(to, "| `%s` | %s |", r.Mutant, r.About)
		for _, t := range tools {
			fmt.Fprintf(to, " %s |", cell(r.Results[t.name]))
		}
		fmt.Fprintln(to, "  |")
	}
}

func asJSON(to io.Writer, _ []tool, rows []row) {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	_ = e.Encode(rows)
}
