package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
)

// forms are the forms of output.
var forms = map[string]func([]tool, []row) string{"text": text, "json": asJSON, "markdown": markdown}

func cell(r result) string {
	switch r.Verdict {
	case Caught:
		return r.Found
	case Crashed:
		return "crashed: " + r.Found
	case Survived:
		return "–"
	case Unreached, Skipped:
	}
	return ""
}

func text(tools []tool, rows []row) string {
	var lines, out strings.Builder
	lines.WriteString("MUTANT")
	for _, t := range tools {
		lines.WriteString("\t" + t.name)
	}
	for _, r := range rows {
		lines.WriteString("\n" + r.Name)
		for _, t := range tools {
			res := r.Results[t.name]
			lines.WriteString("\t" + cell(res))
			if res.Seconds > 0 {
				fmt.Fprintf(&lines, " (%.1f s)", res.Seconds)
			}
		}
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = w.Write([]byte(lines.String() + "\n"))
	_ = w.Flush()
	return out.String()
}

func markdown(tools []tool, rows []row) string {
	var out strings.Builder
	out.WriteString("| mutant | what goes wrong |")
	for _, t := range tools {
		fmt.Fprintf(&out, " %s |", t.name)
	}
	fmt.Fprintf(&out, "\n| --- | --- |%s\n", strings.Repeat(" --- |", len(tools)))
	for _, r := range rows {
		fmt.Fprintf(&out, "| `%s` | %s |", r.Name, r.About)
		for _, t := range tools {
			fmt.Fprintf(&out, " %s |", cell(r.Results[t.name]))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func asJSON(_ []tool, rows []row) string {
	out, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		panic(err) // rows are plain data
	}
	return string(out) + "\n"
}
