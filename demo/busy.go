package demo

import (
	"bytes"
	"strconv"
)

// processors are the times that the machine's processors have spent, in ticks since it started.
type processors struct{ worked, all uint64 }

// busy is the part of the time between two readings that they worked, from 0 to 1; nil where there was no time.
func (p processors) busy(now processors) *float64 {
	if now.all <= p.all || p.all == 0 {
		return nil
	}
	part := float64(now.worked-p.worked) / float64(now.all-p.all)
	return &part
}

// parseProcessors reads the first line of /proc/stat: the times in user mode, in user mode with low priority, in system
// mode, idle, waiting for I/O, and others (proc_stat(5)).
func parseProcessors(text []byte) (processors, bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 6 || string(fields[0]) != "cpu" {
		return processors{}, false
	}
	var p processors
	for i, field := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return processors{}, false
		}
		p.all += n
		if i != 3 && i != 4 {
			p.worked += n
		}
	}
	return p, true
}
