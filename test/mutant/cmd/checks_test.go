package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a check runs exists: tests move, and are renamed.
func TestChecksHaveTests(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, check := range checks() {
		for _, tests := range check.tests {
			for _, run := range tests {
				files, err := filepath.Glob(filepath.Join("../../..", run.pkg, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := strings.Cut(run.run, "/")
				found := false
				for _, file := range files {
					text, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
						found = found || regexp.MustCompile(first).MatchString(m[1])
					}
				}
				if !found {
					t.Errorf("%s: package %s has no test %s", check.name, run.pkg, run.run)
				}
			}
		}
	}
}
