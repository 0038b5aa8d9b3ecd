//go:build !linux

package demo

func readProcessors() (processors, bool) { return processors{}, false }
