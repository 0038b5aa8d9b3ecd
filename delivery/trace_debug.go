package delivery

import ("fmt"; "sync"; "time")

var traceMu sync.Mutex
var traceLog []string

func trace(f string, a ...any) {
	traceMu.Lock()
	defer traceMu.Unlock()
	traceLog = append(traceLog, time.Now().Format("05.000000 ")+fmt.Sprintf(f, a...))
	if len(traceLog) > 60 { traceLog = traceLog[1:] }
}
func (s *Share) Debug() string {
	out := ""
	traceMu.Lock()
	for _, l := range traceLog { out += l + "\n" }
	traceMu.Unlock()
	for _, i := range s.active() {
		i.source.mu.Lock()
		out += fmt.Sprintf("held %v open %v gen %d got %v ready %v want %v warming %v buf %d pos %v pump %v\n", s.Held(), *s.open.Load(), i.source.gen, i.source.got, i.source.ready, i.source.want, i.source.warming, len(i.source.buffer), i.source.position, i.source.pump != nil)
		i.source.mu.Unlock()
	}
	return out
}
