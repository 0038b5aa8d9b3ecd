package labeller

import utilnet "k8s.io/apimachinery/pkg/util/net"

// The selectors, for the tests that measure them.
func Missing(label string) string { return (&Labeller{opts: Options{Label: label}}).missing() }

func Malformed(label string) string { return (&Labeller{opts: Options{Label: label}}).malformed() }

// MaxFixes is the length of Fix's queue.
const MaxFixes = maxFixes

// CloseIdle closes connections that client-go would keep for the next client of the process.
func (l *Labeller) CloseIdle() { utilnet.CloseIdleConnectionsFor(l.http.Transport) }
