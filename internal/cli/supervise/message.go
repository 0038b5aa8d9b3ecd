package supervise

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rota-dev/rota/slot"
)

// Messages to a program and its answers are lines of JSON (docs/run.md, "The protocol").

// protocolVersion is that of the messages.
const protocolVersion = 1

// hello is the first message to a program.
type hello struct {
	Type      string   `json:"type"`
	Version   int      `json:"version"`
	Rota      string   `json:"rota"`
	Namespace string   `json:"namespace"`
	Slots     int      `json:"slots"`
	Key       string   `json:"key"`
	Kinds     []string `json:"kinds"`
}

// message is about a slot, or about the deadline.
type message struct {
	Type string `json:"type"`
	// Slot and the rest are of all messages but deadline.
	Slot *slot.Slot `json:"slot,omitempty"`
	// Seq is of messages that ask for an answer.
	Seq uint64 `json:"seq,omitempty"`
	// Selectors are by kind, Hashes the first and last hash of the slot; both of warm and load. Epoch is of open.
	Selectors map[string]string `json:"selectors,omitempty"`
	Hashes    []string          `json:"hashes,omitempty"`
	Epoch     uint64            `json:"epoch,omitempty"`
	// Gone are deletions: of load, those that the former owner left.
	Gone []deletion `json:"gone,omitempty"`
	// Monotonic is the deadline, in seconds on CLOCK_MONOTONIC.
	Monotonic float64 `json:"monotonic,omitempty"`
}

// answer is a message from a program.
type answer struct {
	Type string    `json:"type"`
	Slot slot.Slot `json:"slot"`
	Seq  uint64    `json:"seq"`
	// Gone, of drained, are deletions that the program leaves to the next owner.
	Gone []deletion `json:"gone"`
}

// deletion names an object that was deleted.
type deletion struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// The types of messages that concern slots, and of the answers to them.
const (
	msgWarm, msgLoad, msgDrain, msgOpen, msgShut, msgDeadline = "warm", "load", "drain", "open", "shut", "deadline"
)

// answerTo are the types of answers.
var answerTo = map[string]string{msgWarm: "warmed", msgLoad: "loaded", msgDrain: "drained"}

// describe describes a slot to a program.
func (s share) describe(n slot.Slot) message {
	m := message{Selectors: map[string]string{}}
	for _, kind := range s.kinds {
		m.Selectors[kind.String()] = s.selector(kind, slot.SetOf(slot.Range{First: n, Last: n}))
	}
	first, last := s.count.Hashes(n)
	m.Hashes = []string{fmt.Sprintf("%016x", first), fmt.Sprintf("%016x", last)}
	return m
}

// kindNames returns the kinds as they are written in messages and on the command line.
func (s share) kindNames() []string {
	names := []string{}
	for _, kind := range s.kinds {
		names = append(names, kind.String())
	}
	return names
}

// encode returns a line.
func encode(m any) []byte {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err) // there is nothing in it that cannot be encoded
	}
	return append(line, '\n')
}

// decode parses an answer.
func decode(line []byte) (a answer, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err = d.Decode(&a); err != nil {
		return a, fmt.Errorf("%.100q: %w", line, err)
	}
	if d.More() {
		return a, fmt.Errorf("%.100q: more than one message in a line", line)
	}
	return a, nil
}
