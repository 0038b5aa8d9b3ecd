package main

import (
	"strconv"
	"strings"
	"testing"
)

// said is a line of a conversation: a command line, its exit code, and words of its output.
type said struct {
	code  exitCode
	line  string
	words []string
}

// conversation reads the lines of a file in testdata. Pairs are variables, and what is written in their places. Words may
// have \n in them.
func conversation(t *testing.T, text string, pairs ...string) (out []said) {
	t.Helper()
	for line := range strings.Lines(strings.NewReplacer(pairs...).Replace(text)) {
		if row := strings.Split(strings.TrimSuffix(line, "\n"), " | "); len(row) > 1 {
			code, err := strconv.Atoi(row[0])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for i, word := range row {
				row[i] = strings.ReplaceAll(word, `\n`, "\n")
			}
			out = append(out, said{exitCode(code), row[1], row[2:]})
		}
	}
	return out
}

// wrong reports whether a command ended otherwise, or did not print all words.
func (s said) wrong(code exitCode, output string) bool {
	for _, word := range s.words {
		if !strings.Contains(output, word) {
			return true
		}
	}
	return code != s.code
}

// converse runs the lines of a file in testdata in the rota's namespace, which is $NS.
func (w *written) converse(t *testing.T, file string, pairs ...string) {
	t.Helper()
	for _, s := range conversation(t, read(t, "testdata/"+file), append(pairs, "$NS", w.namespace)...) {
		line, kubeconfig, given := strings.Cut(s.line, " --kubeconfig ")
		if !given {
			kubeconfig = w.plane.Kubeconfig()
		}
		code, out, errOut := w.rota(t, line, kubeconfig)
		oneLine := code == exitGood || code == exitForbidden || strings.Count(errOut, "\n") == 1
		if s.wrong(code, out+errOut) || !oneLine {
			t.Errorf("rota %s: exit code %d, want %d with %q; output:\n%s%s", s.line, code, s.code, s.words, out, errOut)
		}
	}
}
