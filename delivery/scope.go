package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/slot"
)

// Kind says how the objects of the slots reach the member.
type Kind uint8

const (
	// KindUnknown stands for Filter where Options leave it out.
	KindUnknown Kind = iota
	// Filter receives all objects of a kind and keeps its own. It works with any API server and any key.
	Filter
)

// String returns the kind's name.
func (k Kind) String() string {
	if k == Filter {
		return "Filter"
	}
	return "Unknown"
}

// scope is what a delivery kind asks of the API server. Whatever it asks, every object that arrives is hashed
// and compared with the slots wanted (rule R11).
type scope interface {
	// list narrows the options of a list to the objects of the slots; it may leave in others.
	list(opts *metav1.ListOptions, slots slot.Set)
	// watch does the same for a watch.
	watch(opts *metav1.ListOptions, slots slot.Set)
	// whole says that a watch brings the events of all slots, so that it stays as it is when slots are gained.
	whole() bool
}

// filterScope asks for everything.
type filterScope struct{}

func (filterScope) list(*metav1.ListOptions, slot.Set)  {}
func (filterScope) watch(*metav1.ListOptions, slot.Set) {}
func (filterScope) whole() bool                         { return true }
