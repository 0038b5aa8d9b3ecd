package engine

import (
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
)

// logSink writes to the program's logger once there is one that does not drop everything, as controller-runtime's does
// until it is set. Until then it writes to a fallback.
type logSink struct {
	logr.LogSink
	program *atomic.Pointer[logr.LogSink]
	with    []func(logr.LogSink) logr.LogSink // derive this sink from either logger
}

func newLogSink(other logr.Logger) *logSink {
	return &logSink{LogSink: other.WithCallDepth(1).GetSink(), program: &atomic.Pointer[logr.LogSink]{}}
}

// now returns the sink to write to.
func (s *logSink) now() logr.LogSink {
	out := s.LogSink
	if program := s.program.Load(); program != nil && (*program).Enabled(0) {
		out = *program
	}
	for _, with := range s.with {
		out = with(out)
	}
	return out
}

func (s *logSink) and(with func(logr.LogSink) logr.LogSink) logr.LogSink {
	return &logSink{s.LogSink, s.program, append(slices.Clip(s.with), with)}
}

func (s *logSink) Enabled(level int) bool                    { return s.now().Enabled(level) }
func (s *logSink) Info(level int, text string, more ...any)  { s.now().Info(level, text, more...) }
func (s *logSink) Error(err error, text string, more ...any) { s.now().Error(err, text, more...) }
func (s *logSink) WithValues(more ...any) logr.LogSink {
	return s.and(func(l logr.LogSink) logr.LogSink { return l.WithValues(more...) })
}

func (s *logSink) WithName(name string) logr.LogSink {
	return s.and(func(l logr.LogSink) logr.LogSink { return l.WithName(name) })
}
