package rig

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
)

// Metrics is what a server answers at /metrics.
type Metrics []byte

// Sum adds up a metric's values over the lines that have all of the labels.
func (m Metrics) Sum(name string, labels ...string) float64 {
	var total float64
lines:
	for scan := bufio.NewScanner(bytes.NewReader(m)); scan.Scan(); {
		line := scan.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			total += value
		}
	}
	return total
}
