package judge_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/judge"
)

var rotaName = types.NamespacedName{Namespace: "operators", Name: "website"}

// pod knows the users of the tests: members are "member:" and their process.
func pod(user string) (string, bool) { return strings.CutPrefix(user, "member:") }

// namespace is one in which the Website "zero" lies in slot 0 of 2 and "one" in slot 1; oneLabel is what that one's
// label is.
const namespace, oneLabel = "sites-9", "3999"

var world = judge.World{Pod: pod, Slots: 2, Key: slot.KeyName}

// line is an audit line. at is in seconds after the epoch of the tests.
func line(verb, resource, name, user, code string, at float64, object string) string {
	done := epoch.Add(time.Duration(at * float64(time.Second)))
	ref := fmt.Sprintf(`{"resource":%q,"namespace":%q,"name":%q}`, resource, namespace, name)
	return fmt.Sprintf(`{"stage":"ResponseComplete","verb":%q,"requestURI":"/x","user":{"username":%q},"objectRef":%s,"responseStatus":{"code":%s},`+
		`"requestReceivedTimestamp":%q,"stageTimestamp":%q,"responseObject":%s}`+"\n", verb, user, ref, code,
		done.Add(-10*time.Millisecond).Format(time.RFC3339Nano), done.Format(time.RFC3339Nano), object)
}

func site(uid, version string, generation, observed int, more string) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"generation":%d%s},"status":{"observedGeneration":%d}}`, uid, version, generation, more, observed)
}

func page(uid, version, owner, ownerUID, data string) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"ownerReferences":[{"kind":"Website","name":%q,"uid":%q}]},"data":{"index.html":%q}}`,
		uid, version, owner, ownerUID, data)
}

// service is a child of "one" with a spec; more is metadata.
func service(version, spec, more string) string {
	return fmt.Sprintf(`{"metadata":{"uid":"s","resourceVersion":%q,"ownerReferences":[{"kind":"Website","name":"one","uid":"u"}]%s},"spec":{"type":%q}}`,
		version, more, spec)
}

func labels(value string) string {
	return fmt.Sprintf(`,"labels":{"rota.dev/hash-website-b2c498":%q}`, value)
}

// asLabeller makes an audit line that of a patch of labels, of which the response is metadata.
func asLabeller(line string) string {
	return strings.NewReplacer(`"responseObject":{`, `"requestObject":{"metadata":{"labels":{"rota.dev/hash-website-b2c498":"x"}}},"responseObject":{"kind":"PartialObjectMetadata",`).Replace(line)
}

// logOf reads audit lines and gives them the history of history().
func logOf(t *testing.T, lines ...string) *judge.Log {
	t.Helper()
	var l judge.Log
	if _, err := l.ReadAudit(strings.NewReader(strings.Join(lines, "")), rotaName); err != nil {
		t.Fatal(err)
	}
	l.Tables = history()
	l.Sort()
	return &l
}

func TestForeignWrites(t *testing.T) {
	deleting := `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"by the owner":                             {lines: []string{line("patch", "websites", "one", "member:a", "200", 4, site("u", "139", 1, 1, ""))}},
		"by the next owner, after":                 {lines: []string{line("patch", "websites", "one", "member:b", "200", 6, site("u", "141", 1, 1, ""))}},
		"by the next owner, before":                {lines: []string{line("patch", "websites", "one", "member:b", "200", 4, site("u", "139", 1, 1, ""))}, want: "b a 1"},
		"by the former owner, late":                {lines: []string{line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 1, 1, ""))}, want: "a b 1"},
		"by a dead member":                         {lines: []string{line("patch", "websites", "zero", "member:a", "200", 9, site("u", "161", 1, 1, ""))}, want: "a b 0"},
		"by one that never was":                    {lines: []string{line("patch", "websites", "zero", "member:c", "200", 9, site("u", "155", 1, 1, ""))}, want: "c a 0"},
		"while nobody owns it":                     {lines: []string{line("patch", "websites", "zero", "member:a", "200", 1, site("u", "105", 1, 1, ""))}, want: "a  0"},
		"before there is a table":                  {lines: []string{line("patch", "websites", "zero", "member:a", "200", 1, site("u", "99", 1, 1, ""))}, want: "a  0"},
		"by somebody else":                         {lines: []string{line("patch", "websites", "one", "admin", "200", 6, site("u", "141", 1, 1, ""))}},
		"refused":                                  {lines: []string{line("patch", "websites", "one", "member:a", "409", 6, `{"kind":"Status"}`)}},
		"versions are numbers":                     {lines: []string{line("patch", "websites", "zero", "member:b", "200", 9, site("u", "999", 1, 1, ""))}},
		"a child, by the owner":                    {lines: []string{line("update", "configmaps", "one-page", "member:b", "200", 6, page("c", "141", "one", "u", "x"))}},
		"a child, by the former one":               {lines: []string{line("update", "configmaps", "one-page", "member:a", "200", 6, page("c", "141", "one", "u", "x"))}, want: "a b 1"},
		"another kind of child, by the former one": {lines: []string{line("patch", "services", "one", "member:a", "200", 6, service("141", "x", ""))}, want: "a b 1"},
		"nobody's child":                           {lines: []string{line("update", "configmaps", "one-page", "member:a", "200", 6, `{"metadata":{"uid":"c","resourceVersion":"141"}}`)}},
		"a label": {lines: []string{
			line("create", "websites", "one", "admin", "201", 5, site("u", "139", 1, 1, "")),
			asLabeller(line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 1, 0, labels(oneLabel)))),
		}},
		"a label that was there, answered before another's write of that version": {lines: []string{
			line("create", "websites", "one", "admin", "201", 4, site("u", "137", 1, 1, "")),
			asLabeller(line("patch", "websites", "one", "member:a", "200", 5, site("u", "139", 1, 0, labels(oneLabel)))),
			asLabeller(line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 1, 0, labels(oneLabel)+`,"finalizers":["x"]`))),
			line("patch", "websites", "one", "member:b", "200", 6.1, site("u", "141", 1, 1, labels(oneLabel)+`,"finalizers":["x"]`)),
		}},
		"the same, and that write is another's": {lines: []string{
			line("create", "websites", "one", "admin", "201", 4, site("u", "137", 1, 1, "")),
			asLabeller(line("patch", "websites", "one", "member:a", "200", 5, site("u", "139", 1, 0, labels(oneLabel)))),
			asLabeller(line("patch", "websites", "one", "member:b", "200", 6, site("u", "141", 1, 0, labels(oneLabel)+`,"finalizers":["x"]`))),
			line("patch", "websites", "one", "member:a", "200", 6.1, site("u", "141", 1, 1, labels(oneLabel)+`,"finalizers":["x"]`)),
		}, want: "a b 1"},
		"a label and more": {lines: []string{
			line("create", "websites", "one", "admin", "201", 5, site("u", "139", 1, 1, "")),
			line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 2, 1, labels(oneLabel))),
		}, want: "a b 1"},
		"a wrong label": {lines: []string{
			line("create", "websites", "one", "admin", "201", 5, site("u", "139", 1, 1, "")),
			asLabeller(line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 1, 0, labels("7")))),
		}, want: "a b 1"},
		"metadata, by another patch": {lines: []string{
			line("create", "websites", "one", "admin", "201", 5, site("u", "139", 1, 1, "")),
			strings.Replace(asLabeller(line("patch", "websites", "one", "member:a", "200", 6, site("u", "141", 1, 0, labels(oneLabel)))), `"x"}`, `"x"},"a":{}`, 1),
		}, want: "a b 1"},
		"no change": {lines: []string{
			line("patch", "websites", "one", "member:a", "200", 4, site("u", "139", 1, 1, "")),
			line("patch", "websites", "one", "member:b", "200", 6, site("u", "139", 1, 1, "")),
		}},
		"last finalizer, owner": {lines: []string{line("patch", "websites", "one", "member:b", "200", 6.5, site("u", "120", 1, 1, deleting))}},
		"last finalizer, late":  {lines: []string{line("patch", "websites", "one", "member:a", "200", 6.5, site("u", "120", 1, 1, deleting))}, want: "a b 1"},
		"last finalizer, while the slot is handed over": {lines: []string{
			line("patch", "websites", "one", "member:a", "200", 4.95, site("u", "120", 1, 1, deleting)),
		}},
	} {
		got := ""
		for _, f := range logOf(t, test.lines...).Foreign(world) {
			got += fmt.Sprintf("%s %s %d", f.Pod, f.Owner, f.Slot)
		}
		if got != test.want {
			t.Errorf("%s: foreign writes %q, want %q", name, got, test.want)
		}
	}
}

// The API server answers 504 to a write of the table that takes effect all the same. Whoever watches sees it.
func TestTablesThatWereSeenOnly(t *testing.T) {
	all := history()
	deleting := `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	for missing, v := range all {
		for name, lines := range map[string][]string{
			"by version": {line("patch", "websites", "one", "member:b", "200", 6, site("u", "141", 1, 1, ""))},
			"by time":    {line("patch", "websites", "one", "member:b", "200", 6.5, site("u", "120", 1, 1, deleting))},
		} {
			l := logOf(t, lines...)
			l.Tables = slices.Delete(slices.Clone(all), missing, missing+1)
			l.Saw(all)
			if foreign := l.Foreign(world); len(foreign) != 0 {
				t.Errorf("%s, without version %s: %+v", name, v.Version, foreign)
			}
			if len(l.Tables) != len(all) {
				t.Errorf("%d versions, want %d", len(l.Tables), len(all))
			}
		}
	}
	l := logOf(t, line("patch", "websites", "one", "member:b", "200", 4, site("u", "139", 1, 1, "")))
	l.Saw(all)
	if foreign := l.Foreign(world); len(foreign) != 1 {
		t.Errorf("a write before the slot was handed over: %d foreign writes", len(foreign))
	}
}

func TestMoveWrites(t *testing.T) {
	label, right := labels("7"), labels(oneLabel)
	base := line("create", "websites", "one", "admin", "201", 1, site("u", "10", 1, 0, ""))
	done := line("update", "websites", "one", "member:a", "200", 2, site("u", "11", 1, 1, ""))
	child := line("create", "configmaps", "one-page", "member:a", "201", 2, page("c", "12", "one", "u", "x"))
	for name, test := range map[string]struct {
		lines []string
		want  int
	}{
		"real work":                   {lines: []string{base, done, child}},
		"a new generation":            {lines: []string{base, done, line("patch", "websites", "one", "admin", "200", 3, site("u", "13", 2, 1, "")), line("update", "websites", "one", "member:a", "200", 4, site("u", "14", 2, 2, ""))}},
		"a label":                     {lines: []string{base, done, line("patch", "websites", "one", "admin", "200", 3, site("u", "13", 1, 1, label))}, want: 1},
		"a label from the start":      {lines: []string{line("create", "websites", "one", "admin", "201", 1, site("u", "10", 1, 0, label))}, want: 1},
		"another label":               {lines: []string{base, done, line("patch", "websites", "one", "admin", "200", 3, site("u", "13", 1, 1, `,"labels":{"team":"7"}`))}},
		"status again":                {lines: []string{base, done, line("update", "websites", "one", "member:b", "200", 3, site("u", "13", 1, 1, ""))}, want: 1},
		"a child again":               {lines: []string{base, done, child, line("update", "configmaps", "one-page", "member:b", "200", 3, page("c", "13", "one", "u", "x"))}, want: 1},
		"a child with new data":       {lines: []string{base, done, child, line("update", "configmaps", "one-page", "member:b", "200", 3, page("c", "13", "one", "u", "y"))}},
		"a child adopted":             {lines: []string{base, done, child, line("update", "configmaps", "one-page", "member:b", "200", 3, page("c", "13", "one", "v", "x"))}},
		"outside of the time":         {lines: []string{base, done, line("update", "websites", "one", "member:b", "200", 30, site("u", "13", 1, 1, ""))}},
		"answered out of order":       {lines: []string{base, line("patch", "websites", "one", "admin", "200", 4, site("u", "12", 2, 1, "")), line("update", "websites", "one", "member:a", "200", 3, site("u", "13", 2, 2, "")), line("update", "websites", "one", "member:a", "200", 2, site("u", "11", 1, 1, ""))}},
		"the finalizer of a deletion": {lines: []string{base, done, line("delete", "websites", "one", "admin", "200", 3, site("u", "13", 1, 1, `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"]`)), line("patch", "websites", "one", "member:a", "200", 4, site("u", "13", 1, 1, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`))}},
		"the label of its key":        {lines: []string{base, done, asLabeller(line("patch", "websites", "one", "member:b", "200", 3, site("u", "13", 1, 0, right)))}},
		"the label of its key, again": {lines: []string{base, line("update", "websites", "one", "member:a", "200", 2, site("u", "11", 1, 1, right)), asLabeller(line("patch", "websites", "one", "member:b", "200", 3, site("u", "11", 1, 0, right)))}},
		"work after a label":          {lines: []string{base, asLabeller(line("patch", "websites", "one", "member:b", "200", 2, site("u", "11", 1, 0, right))), line("update", "websites", "one", "member:a", "200", 3, site("u", "12", 1, 1, right))}},
		"its label goes":              {lines: []string{base, line("update", "websites", "one", "member:a", "200", 2, site("u", "11", 1, 1, right)), line("patch", "websites", "one", "admin", "200", 3, site("u", "13", 1, 1, ""))}, want: 1},
		"a wrong label is put right":  {lines: []string{line("create", "websites", "one", "admin", "201", -1, site("u", "10", 1, 1, label)), asLabeller(line("patch", "websites", "one", "member:b", "200", 3, site("u", "13", 1, 0, right)))}},
		"an annotation":               {lines: []string{base, done, line("patch", "websites", "one", "admin", "200", 3, site("u", "13", 1, 1, `,"annotations":{"x.rota.dev/y":"7"}`))}, want: 1},
		"a Service again":             {lines: []string{line("create", "services", "one", "member:a", "201", 2, service("12", "x", "")), line("patch", "services", "one", "member:b", "200", 3, service("13", "x", ""))}, want: 1},
		"a Service put right":         {lines: []string{line("create", "services", "one", "member:a", "201", 2, service("12", "x", "")), line("patch", "services", "one", "member:b", "200", 3, service("13", "y", ""))}},
	} {
		if got := logOf(t, test.lines...).MoveWrites(world, epoch, epoch.Add(10*time.Second)); len(got) != test.want {
			t.Errorf("%s: %d writes only to move, want %d: %+v", name, len(got), test.want, got)
		}
	}
}

func TestReadAudit(t *testing.T) {
	tab := history()[4].Table
	data := strings.Builder{}
	for field, text := range table.Encode(tab) {
		fmt.Fprintf(&data, ",%q:%q", field, text)
	}
	cm := func(version string) string {
		l := line("update", "configmaps", "website", "member:a", "200", 1, fmt.Sprintf(`{"metadata":{"uid":"t","resourceVersion":%q},"data":{%s}}`, version, data.String()[1:]))
		return strings.Replace(l, fmt.Sprintf(`"namespace":%q`, namespace), `"namespace":"operators"`, 1)
	}
	list := line("list", "websites", "", "member:b", "200", 2, "null")
	watch := strings.NewReplacer(`"verb":"list"`, `"verb":"watch"`, `"/x"`, `"/x?sendInitialEvents=true"`, "ResponseComplete", "ResponseStarted").Replace(list)
	var l judge.Log
	text := strings.Join([]string{
		cm("9"), cm("10"), cm("9"), list, watch,
		strings.Replace(list, `"/x"`, `"/x?limit=500&continue=abc"`, 1),
		strings.Replace(list, `"/x"`, `"/x?limit=1"`, 1),
		strings.Replace(watch, "sendInitialEvents=true", "resourceVersion=7", 1),
		line("list", "websites", "", "admin", "200", 2, "null"),
		line("get", "websites", "one", "member:b", "200", 2, "null"),
		line("create", "configmaps", "unrelated", "admin", "201", 2, `{"metadata":{"uid":"c","resourceVersion":"7"}}`),
		line("delete", "websites", "one", "admin", "200", 2, `{"kind":"Status","metadata":{},"status":"Success","details":{"uid":"u"}}`),
		strings.Replace(line("patch", "websites", "one", "admin", "200", 2, site("u", "12", 1, 1, "")), `"user":`, `"impersonatedUser":{"username":"member:b"},"user":`, 1),
		`{"cut short": "resource":"websites"`,
	}, "")
	if _, err := l.ReadAudit(strings.NewReader(text), rotaName); err != nil {
		t.Fatal(err)
	}
	l.Sort()
	if len(l.Tables) != 2 || l.Tables[0].Version != "9" || cmp.Diff(tab.Runs, l.Tables[1].Table.Runs) != "" {
		t.Errorf("table versions: %+v", l.Tables)
	}
	if n := l.TableWrites(epoch, epoch.Add(time.Minute)); n != 2 {
		t.Errorf("%d table writes, want 2", n)
	}
	if n, err := l.ListedBy(world, epoch, epoch.Add(time.Minute), make([]judge.Site, 500)); n != 1001 || err != nil {
		t.Errorf("%d objects listed by members, want 500 twice and 1: %+v, %v", n, l.Lists, err)
	}
	if len(l.Writes) != 2 || l.Writes[0].Object != nil || l.Writes[1].User != "member:b" || l.Writes[1].Site.UID != "u" {
		t.Errorf("writes: %+v", l.Writes)
	}
	for _, bad := range []string{`{"verb":"list","resource":"websites"` + "\n", strings.Replace(cm("9"), `"format":"1"`, `"format":"x"`, 1)} {
		if _, err := new(judge.Log).ReadAudit(strings.NewReader(bad), rotaName); err == nil {
			t.Errorf("%.80s was read", bad)
		}
	}
}

// TestListedBy: what selectors let through is counted.
func TestListedBy(t *testing.T) {
	sites := make([]judge.Site, 1000)
	for i := range sites {
		sites[i] = judge.Site{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("site-", i)}, UID: fmt.Sprint("uid-", i)}
	}
	lower := func(key slot.Key) (n int) {
		for _, s := range sites {
			if slot.Count(2).Of(key.Hash(s.Namespace, s.Name, s.UID)) == 0 {
				n++
			}
		}
		return n
	}
	byUID := judge.World{Pod: pod, Slots: 2, Key: slot.KeyUID}
	for name, test := range map[string]struct {
		world           judge.World
		resource, query string
		want            int
	}{
		"by the label":             {world, "websites", "labelSelector=" + url.QueryEscape("rota.dev/hash-website-b2c498<2048"), lower(slot.KeyName)},
		"the other half":           {world, "websites", "labelSelector=" + url.QueryEscape("rota.dev/hash-website-b2c498>2047"), 1000 - lower(slot.KeyName)},
		"by the owner's":           {world, "deployments", "labelSelector=" + url.QueryEscape("rota.dev/owner-hash-deployment-1e8b58<2048"), lower(slot.KeyName)},
		"by another label":         {world, "deployments", "labelSelector=" + url.QueryEscape("rota.dev/hash-website-b2c498<2048"), 0},
		"what lacks it":            {world, "websites", "labelSelector=" + url.QueryEscape("!rota.dev/hash-website-b2c498"), 0},
		"by the owner's UID":       {byUID, "services", "labelSelector=" + url.QueryEscape("rota.dev/owner-uid-hash-service-bd76e8<2048"), lower(slot.KeyUID)},
		"by the UID":               {byUID, "websites", "shardSelector=" + url.QueryEscape("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"), lower(slot.KeyUID)},
		"by two ranges of the UID": {byUID, "websites", "shardSelector=" + url.QueryEscape("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"), 1000},
		"one":                      {world, "websites", "limit=1", 1},
		"of another kind":          {world, "secrets", "", 0},
	} {
		log := logOf(t, strings.Replace(line("list", test.resource, "", "member:b", "200", 2, "null"), `"/x"`, `"/x?`+test.query+`"`, 1))
		if n, err := log.ListedBy(test.world, epoch, epoch.Add(time.Minute), sites); n != test.want || err != nil {
			t.Errorf("%s: %d objects, want %d: %v", name, n, test.want, err)
		}
	}
	bad := logOf(t, strings.Replace(line("list", "websites", "", "member:b", "200", 2, "null"), `"/x"`, `"/x?shardSelector=all"`, 1))
	if _, err := bad.ListedBy(world, epoch, epoch.Add(time.Minute), sites); err == nil {
		t.Error("a shard selector that is none was read")
	}
}

func TestLabelled(t *testing.T) {
	l := logOf(t,
		line("create", "websites", "one", "admin", "201", 1, site("u", "10", 1, 0, "")),
		asLabeller(line("patch", "websites", "one", "member:b", "200", 2, site("u", "11", 1, 0, labels(oneLabel)))),
		asLabeller(line("patch", "websites", "one", "member:a", "200", 2.1, site("u", "11", 1, 0, labels(oneLabel)))), // too late
		line("update", "websites", "one", "member:a", "200", 3, site("u", "12", 1, 1, labels(oneLabel))),
		line("create", "services", "one", "member:a", "201", 3, service("13", "x", `,"labels":{"rota.dev/owner-hash-service-bd76e8":"3999"}`)),
	)
	if n := l.Labelled(world, epoch, epoch.Add(time.Minute)); n != 1 {
		t.Errorf("%d writes of labels, want 1", n)
	}
	// A child that got another owner may be given the label of the one before, by who saw it then; another value is work.
	other := strings.NewReplacer(`"name":"one","uid":"u"`, `"name":"two","uid":"v"`)
	for value, want := range map[string]int{"3999": 0, "17": 1} {
		adopted := logOf(t,
			line("create", "services", "one", "admin", "201", 1, service("10", "x", "")),
			other.Replace(line("update", "services", "one", "admin", "200", 2, service("11", "x", ""))),
			asLabeller(other.Replace(line("patch", "services", "one", "member:b", "200", 3, service("12", "x", `,"labels":{"rota.dev/owner-hash-service-bd76e8":"`+value+`"}`)))),
		)
		if foreign, moves := adopted.Foreign(world), adopted.MoveWrites(world, epoch, epoch.Add(time.Minute)); len(foreign) != want || len(moves) != want {
			t.Errorf("label %s: %d foreign writes and %d to move, want %d", value, len(foreign), len(moves), want)
		}
	}
	// What was there before may not be known.
	alone := logOf(t, asLabeller(line("patch", "websites", "one", "member:b", "200", 2, site("u", "11", 1, 0, labels(oneLabel)))))
	if foreign := alone.Foreign(world); len(foreign) != 0 {
		t.Errorf("the right label alone is taken for work on the object: %v", foreign)
	}
}
