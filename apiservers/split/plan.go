package split

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Plan is one kube-controller-manager divided into groups.
type Plan struct {
	Catalog Catalog
	Groups  []Planned
	// Off are the controllers that the undivided process does not run, so no group does.
	Off []string
	// Notes are messages to the operator.
	Notes []string

	undivided Command
	manifest  *Manifest // nil if the input was a command line
}

// Planned is a Group with its command. Its Lease, SecurePort and Controllers are filled in.
type Planned struct {
	Group
	// On are the Controllers that run. The others are off.
	On      []string
	Command Command
}

// Input is the kube-controller-manager to divide: a Manifest, or otherwise a Command.
type Input struct {
	Manifest *Manifest
	Command  Command
}

// New divides a kube-controller-manager. Without groups it uses the default grouping. The error contains all mistakes.
func New(in Input, groups []Group, cat Catalog) (*Plan, error) {
	c := in.Command
	if in.Manifest != nil {
		c = in.Manifest.command
	}
	p := &Plan{Catalog: cat, undivided: c, manifest: in.Manifest}
	if len(groups) == 0 {
		_, groups = DefaultGroups()
		groups = only(groups, cat)
	}
	port, err := c.port()
	errs := []error{err, divisible(c)}
	on, err := c.runs(cat)
	errs = append(errs, err)
	base := c.lease()
	if base == "" {
		base = program
	}
	settled, err := settle(groups, cat, base, port)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	token := cat.resolve(tokenController)
	for _, g := range settled {
		planned := Planned{Group: g}
		for _, name := range g.Controllers {
			if slices.Contains(on, name) {
				planned.On = append(planned.On, name)
			} else {
				p.Off = append(p.Off, name)
			}
		}
		if len(planned.On) == 0 {
			errs = append(errs, fmt.Errorf("group %s would run nothing: all its controllers are off", g.Name))
		}
		planned.Command = c.with("controllers", strings.Join(planned.On, ",")).
			with("leader-elect-resource-name", g.Lease).
			with("secure-port", strconv.Itoa(g.SecurePort))
		if !slices.Contains(planned.On, token) {
			planned.Command = planned.Command.without("service-account-private-key-file")
		}
		p.Groups = append(p.Groups, planned)
	}
	slices.Sort(p.Off)
	p.note(c, on)
	return p, errors.Join(errs...)
}

// divisible returns an error if a command cannot be divided.
func divisible(c Command) error {
	var errs []error
	if !c.Bool("leader-elect", true) {
		errs = append(errs, errors.New("--leader-elect=false: without leader election every replica of a group would work; "+
			"remove the flag"))
	}
	if c.Bool("enable-leader-migration", false) {
		errs = append(errs, errors.New("--enable-leader-migration: all groups would compete for the one migration lease, "+
			"and a group without serviceaccount-token-controller crashes; finish the migration and remove the flag"))
	}
	coordinated, set := c.gate("CoordinatedLeaderElection")
	for _, all := range []string{"AllBeta", "AllAlpha"} {
		if on, _ := c.gate(all); on && !set {
			coordinated = true
		}
	}
	if coordinated {
		errs = append(errs, errors.New("the feature gate CoordinatedLeaderElection: its candidates are all of the lease "+
			"kube-controller-manager, whatever --leader-elect-resource-name says, so no group would ever lead; switch it off"))
	}
	return errors.Join(errs...)
}

// note adds notes about what the groups do not show.
func (p *Plan) note(c Command, on []string) {
	add := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if p.Catalog.Version != Verified {
		add("which controllers need each other or a flag is known from %s, and this is %s", Verified, p.Catalog.Version)
	}
	token := p.Catalog.resolve(tokenController)
	for _, g := range p.Groups {
		if slices.Contains(g.On, token) {
			add("%s runs wherever there is a key to sign with, whatever --controllers says: only group %s keeps "+
				"--service-account-private-key-file", token, g.Name)
		}
	}
	for _, name := range needNames() {
		if !needs[name].met(c) && (name == tokenController || slices.Contains(on, p.Catalog.resolve(name))) {
			add("%s does nothing, as before: it needs %s", name, needs[name].flag)
		}
	}
	var cloud []string
	for _, k := range known {
		if k.Cloud && slices.Contains(on, k.Name) {
			cloud = append(cloud, k.Name)
		}
	}
	if len(cloud) > 0 {
		add("listed, as before, but never started: %s; they moved to cloud-controller-manager", strings.Join(cloud, ", "))
	}
}

// A File is a file to write, with its path relative to a folder.
type File struct {
	Path string
	Text []byte
}

// header is the first line of each file that is written, so that it can be recognized.
const header = "# Written by `rota split kcm`"

// Written reports whether `rota split kcm` wrote a file.
func Written(text []byte) bool { return strings.Contains(string(text), header) }

// Files returns the files that an operator needs to migrate to the plan and back.
func (p *Plan) Files() ([]File, error) {
	port, err := p.undivided.port()
	if err != nil {
		return nil, err
	}
	var files []File
	for _, g := range p.Groups {
		comment := fmt.Sprintf("%s from %s %s: group %s, %d controllers.\n",
			header, program, p.Catalog.Version, g.Name, len(g.On))
		if p.manifest == nil {
			text := append([]byte("#!/bin/sh\n"+comment), script(g.Command)...)
			files = append(files, File{path.Join("commands", program+"-"+g.Name+".sh"), text})
			continue
		}
		text, err := p.manifest.divide(g.Name, g.Command, port, g.SecurePort)
		if err != nil {
			return nil, err
		}
		files = append(files, File{path.Join("manifests", program+"-"+g.Name+".yaml"), append([]byte(comment), text...)})
	}
	return append(files, p.rbac(),
		p.hold("hold-undivided.yaml", p.undivided.lease()), p.hold("hold-groups.yaml", p.leases()...)), nil
}

func (p *Plan) leases() []string {
	var out []string
	for _, g := range p.Groups {
		out = append(out, g.Lease)
	}
	return out
}

// Namespace returns the namespace of the Leases.
func (p *Plan) Namespace() string { return p.undivided.namespace() }

// UndividedLease returns the Lease of the undivided kube-controller-manager.
func (p *Plan) UndividedLease() string { return p.undivided.lease() }
