package config

import (
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // an image may have none

	"github.com/rota-dev/rota/examples/notify/notice"
)

// Digest says when it is told what fails, and whom. It is about the kinds with the event failing.
type Digest struct {
	// At is the local time of day, such as 08:00.
	At string `yaml:"at"`
	// Timezone is a name of the IANA time zone database. Default UTC.
	Timezone string `yaml:"timezone"`
	// Destinations are names. Default: all. Their Events do not matter for it.
	Destinations []string `yaml:"destinations"`

	// After is what At says: the time since midnight.
	After time.Duration `yaml:"-"`
	// Location is what Timezone says.
	Location *time.Location `yaml:"-"`
}

func (d *Digest) complete(c *Config) error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("digest: "+format, args...)) }
	at, err := time.Parse("15:04", d.At)
	if err != nil {
		refuse(`at %q: write the local time of day from 00:00 to 23:59, such as "08:00"`, d.At)
	}
	d.After = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	setDefault(&d.Timezone, "UTC")
	d.Location, err = time.LoadLocation(d.Timezone)
	if err != nil || d.Timezone == "Local" { // replicas may differ in that
		refuse("timezone %q is not known: use a name of the IANA time zone database, such as Europe/Berlin", d.Timezone)
	}
	var names []string
	for i := range c.Destinations {
		names = append(names, c.Destinations[i].Name)
	}
	for i, name := range d.Destinations {
		switch {
		case !slices.Contains(names, name):
			refuse("destination %q is not one: use names of those under destinations", name)
		case slices.Contains(d.Destinations[:i], name):
			refuse("destination %q: it is there twice: remove one", name)
		}
	}
	if len(d.Destinations) == 0 {
		d.Destinations = names
	}
	if !slices.ContainsFunc(c.Kinds, func(k Kind) bool { return k.Wants(notice.Failing) }) {
		refuse("no kind has the event failing, so there is nothing to tell: add that event to Pods, Jobs or Deployments")
	}
	return errors.Join(errs...)
}
