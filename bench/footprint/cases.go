package footprint

import (
	"fmt"
	"slices"
)

// What is the kind of a case.
type What string

// Idle measures replicas without objects. Steady measures replicas with all objects, first at rest and then under a
// steady load. Join adds a member. Latency is the time from the creation of a Website to its first reconcile.
const (
	Idle    What = "idle"
	Steady  What = "steady"
	Join    What = "join"
	Latency What = "latency"
)

// joined is the number of members before another one joins, and the number in the measurement of latencies.
const joined = 3

// standbys is the number of replicas under leader election: the leader and one that waits.
const standbys = 2

// Case is one measurement.
type Case struct {
	What    What `json:"what"`
	Form    Form `json:"form"`
	Members int  `json:"members"` // processes, before one joins
}

// String returns the case's name, such as steady/filter/3.
func (c Case) String() string { return fmt.Sprintf("%s/%s/%d", c.What, c.Form, c.Members) }

// Cases returns the cases to measure, ordered so that the number of objects only grows.
func (o *Options) Cases() []Case {
	var all []Case
	each := func(what What) {
		all = append(all, Case{what, Stock, standbys})
		for _, f := range o.Deliveries {
			for _, n := range o.Members {
				all = append(all, Case{what, f, n})
			}
		}
	}
	each(Idle)
	for _, f := range o.Deliveries {
		all = append(all, Case{Join, f, joined})
	}
	each(Steady)
	for _, f := range o.Deliveries {
		all = append(all, Case{Latency, f, joined})
	}
	return slices.DeleteFunc(all, func(c Case) bool { return o.Only != nil && !o.Only.MatchString(c.String()) })
}

// objects is the number of Websites in a case.
func (o *Options) objects(c Case) int {
	switch c.What {
	case Idle:
		return 0
	case Join:
		return o.JoinObjects
	default:
		return o.Objects
	}
}
