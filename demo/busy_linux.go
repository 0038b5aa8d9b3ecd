package demo

import "os"

func readProcessors() (processors, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, false
	}
	return parseProcessors(text)
}
