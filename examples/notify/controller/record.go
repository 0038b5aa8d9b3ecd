package controller

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// record is what is remembered of an object: what was told, and what is still to be told. It is written before
// anything is sent.
type record struct {
	Object notice.Object `json:"object"`
	// Version of the object at the last change of the record. Older states are not compared with it.
	Version string `json:"version,omitempty"`
	// Fingerprint of what the object had when it was last compared.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Failing are the reasons that were told since the object was last in order.
	Failing []string `json:"failing,omitempty"`
	// FailingSince is when the first of them was seen.
	FailingSince time.Time `json:"failingSince,omitzero"`
	// Gone says that the object's deletion was told.
	Gone bool `json:"gone,omitempty"`
	// Count of all notices so far. It is part of their IDs.
	Count int `json:"count"`
	// Outbox has what is to be told, oldest first.
	Outbox []entry `json:"outbox,omitempty"`
}

// entry is a notice and who is still to be told.
type entry struct {
	notice.Notice
	To []string `json:"to"`
}

func (r *record) clone() *record {
	if r == nil {
		return nil
	}
	c := *r
	c.Failing = slices.Clone(r.Failing)
	c.Outbox = make([]entry, 0, len(r.Outbox))
	for _, e := range r.Outbox {
		e.To = slices.Clone(e.To)
		c.Outbox = append(c.Outbox, e)
	}
	return &c
}

// differs says whether the record says anything else than another one, which may be nil.
func (r *record) differs(from *record) bool {
	if from == nil {
		return true
	}
	a, b := r.clone(), from.clone()
	a.Version, b.Version = "", ""
	return !reflect.DeepEqual(a, b)
}

// trim drops the oldest notices if too many wait, and returns how many of each destination.
func (r *record) trim() map[string]int {
	var dropped map[string]int
	for len(r.Outbox) > mostNotices {
		if dropped == nil {
			dropped = map[string]int{}
		}
		for _, name := range r.Outbox[0].To {
			dropped[name]++
		}
		r.Outbox = r.Outbox[1:]
	}
	return dropped
}

// told notes that a destination need not be told of a notice any more.
func (r *record) told(id, destination string) {
	for i := range r.Outbox {
		if e := &r.Outbox[i]; e.ID == id {
			e.To = slices.DeleteFunc(e.To, func(name string) bool { return name == destination })
		}
	}
	r.Outbox = slices.DeleteFunc(r.Outbox, func(e entry) bool { return len(e.To) == 0 })
}

// waiting returns the destinations that are still to be told of something.
func (r *record) waiting() []string {
	var out []string
	for _, e := range r.Outbox {
		out = append(out, e.To...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *record) encode() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

func decode(text string) (*record, error) {
	r := &record{}
	return r, json.Unmarshal([]byte(text), r)
}
