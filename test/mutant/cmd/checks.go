package main

import (
	"slices"

	"github.com/rota-dev/rota/test/mutant"
)

// tool is a check.
type tool struct {
	name string
	// reaches are the packages in which it can find a bug: it runs their code. tests are its test binaries, by package.
	reaches []string
	tests   map[string][]test
	// probe are the arguments of the command probe, for a check that is none of tests; faults those of the command chaos.
	probe  func(options) []string
	faults []string
}

// test is a run of the tests of a package.
type test struct {
	pkg, run string
	// single runs one test at a time, so that the same one fails first each time.
	single bool
}

// checks returns the checks, the quickest first.
func checks() []tool {
	scripts := []test{{"internal/protocol/member", "^TestR[0-9]", true}}
	return []tool{
		{
			name:    "scripts",
			reaches: []string{"internal/protocol/member", "internal/gate", "internal/store", "internal/replica"},
			tests: map[string][]test{
				"": scripts, "internal/protocol/member": scripts, "internal/gate": scripts, "internal/store": scripts,
				"internal/replica": scripts,
			},
		},
		{
			name: "lives", reaches: []string{"internal/delivery/stream"},
			tests: map[string][]test{"": lifeTests, "internal/delivery/stream": lifeTests},
		},
		{
			name: "conformance",
			reaches: []string{
				"internal/gate", "internal/store", "internal/delivery/stream", "internal/delivery", "internal/work",
				"internal/writes", "internal/duty", "internal/controllers", "internal/delivery/written", "rota",
			},
			tests: map[string][]test{
				"":                  slices.Concat(gateTests, storeTests, deliveryTests, rotaTests),
				"internal/gate":     gateTests,
				"internal/store":    storeTests,
				"internal/delivery": deliveryTests, "internal/delivery/stream": deliveryTests,
				"internal/delivery/written": deliveryTests,
				"rota":                      rotaTests, "internal/work": rotaTests, "internal/writes": rotaTests,
				"internal/duty": rotaTests, "internal/controllers": rotaTests,
			},
		},
		{
			name: "differential", reaches: []string{"ctrlrt", "rota", "internal/writes", "internal/controllers"},
			tests: map[string][]test{
				"": slices.Concat(readTests, stockTests), "ctrlrt": readTests, "rota": stockTests, "internal/writes": stockTests,
				"internal/controllers": stockTests,
			},
		},
		{
			name: "exhaustive", reaches: []string{"internal/protocol/member"},
			probe: func(o options) []string { return []string{"-states", itoa(o.states)} },
		},
		{
			name: "simulation", reaches: []string{
				"internal/protocol/member", "internal/gate", "internal/store", "internal/delivery/stream", "internal/work",
				"internal/replica", "internal/duty", "internal/delivery/written",
			},
			probe: func(o options) []string { return []string{"-seeds", itoa(o.seeds)} },
		},
		{
			name: chaos, faults: chaosFaults,
			reaches: []string{
				"internal/protocol/member", "internal/gate", "internal/store", "internal/delivery", "rota",
			},
		},
	}
}

// chaos takes minutes for a mutant, and is run only where that is asked for.
const chaos = "chaos"

// chaosFaults take a minute and a half. There is no fence: it would hide what is looked for.
var chaosFaults = []string{
	"-fence=false", "-objects", "300", "-fail-fast", "-o", "json", "-runs", "8",
	"-faults", "rollout-slow,join-leave,restart,slow-1,partition-responses,pause-1.01-reconcile,table-deleted,compaction",
}

// The suites in memory. The same run against a real API server, in the tests of their packages.
var (
	gateTests     = []test{{"internal/gate", ".", true}}
	storeTests    = []test{{"test/store/memory", "^Test(Memory|Objects)", true}}
	lifeTests     = []test{{"test/streamtest", "^Test(Lives|Graveyard)$", true}}
	deliveryTests = []test{
		{"internal/delivery", "^TestOwnedKinds$", false},
		{"internal/delivery", "^TestMemory$/^Kinds$/^(Filter|SlotLabel)$/^WatchList=false$", false},
	}
	rotaTests = []test{{".", "^TestR[0-9]", true}}
	// These hold the product against what it stands in for, the first on a real API server.
	readTests  = []test{{"ctrlrt", "^TestReadsAreThoseOfAStockManager$", true}}
	stockTests = []test{
		{".", "^(TestAQueueIsAStockQueue|TestRequestsAreStockRequests)$", true},
		{"ctrlrt", "^TestAControllersQueueIsAStockQueue$", true},
	}
)

// reached says whether a check can find a bug there at all.
func (t tool) reached(m mutant.Mutant) bool { return slices.Contains(t.reaches, m.Package) }
