package labeller

import (
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rota-dev/rota/slot"
)

// The selectors, for the tests that measure them.
func Missing(label string) string { return (&Labeller{opts: Options{Label: label}}).missing() }

func Malformed(label string) string { return (&Labeller{opts: Options{Label: label}}).malformed() }

// MaxFixes is the length of Fix's queue.
const MaxFixes = maxFixes

// CloseIdle closes connections that client-go would keep for the next client of the process.
func (l *Labeller) CloseIdle() { utilnet.CloseIdleConnectionsFor(l.http.Transport) }

// Refused sums up the objects that have been refused for long.
func (l *Labeller) Refused(slots slot.Count) Refusal { return l.refusals.lasting(slots, time.Now()) }
