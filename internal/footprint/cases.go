package footprint

import (
	"fmt"
	"slices"
)

// What is measured in a case.
type What string

// Idle replicas have no objects. Steady ones have all, are quiet first and then under a steady load. Join is a member
// more that joins; Latency the time from the creation of a Website to its first reconcile.
const (
	Idle    What = "idle"
	Steady  What = "steady"
	Join    What = "join"
	Latency What = "latency"
)

// joined is how many members there are when another one joins, and in the measurement of latencies.
const joined = 3

// standbys is how many replicas run under leader election: the leader and one that waits.
const standbys = 2

// Case is one measurement.
type Case struct {
	What    What `json:"what"`
	Form    Form `json:"form"`
	Members int  `json:"members"` // processes, before one joins
}

// String returns the case's name, such as steady/filter/3.
func (c Case) String() string { return fmt.Sprintf("%s/%s/%d", c.What, c.Form, c.Members) }

// Cases returns what there is to measure, in an order in which the number of objects only grows.
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

// objects is how many Websites there are in a case.
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
