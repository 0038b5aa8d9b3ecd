package neighbor

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An answer to a later change of an object answers the earlier ones, too.
func TestSaw(t *testing.T) {
	begun := time.Now()
	d := &desk{at: map[question]time.Time{
		{"object-1", 1}: begun, {"object-1", 3}: begun.Add(time.Second), {"object-1", 5}: begun.Add(2 * time.Second),
		{"object-2", 2}: begun,
	}}
	obj := &corev1.Secret{ObjectMeta: meta(quietNamespace, 1)}
	d.saw(obj, begun.Add(3*time.Second)) // nothing is done yet
	obj.Annotations = map[string]string{wantedAnnotation: "5", doneAnnotation: "3"}
	d.saw(obj, begun.Add(4*time.Second))
	d.saw(obj, begun.Add(5*time.Second)) // the same again
	if len(d.took) != 2 || d.took[0]+d.took[1] != 7*time.Second || len(d.at) != 2 {
		t.Errorf("answers after %v, %d changes are open", d.took, len(d.at))
	}
	flood := &corev1.ConfigMap{ObjectMeta: meta(floodNamespace, 1)}
	flood.Annotations = map[string]string{wantedAnnotation: "8", doneAnnotation: "7"}
	d.saw(flood, begun)
	flood.Annotations[doneAnnotation] = "8"
	d.saw(flood, begun)
	if d.answers() != 1 {
		t.Errorf("%d answers to the flood, want 1", d.answers())
	}
}

func TestMarkdown(t *testing.T) {
	r := &Report{Results: []Result{{Form: Duties, Round: 2, Alone: Times{P50: 4, P99: 10}, Flood: Times{P50: 5, P99: 12}}}}
	if got := r.Markdown(); !strings.Contains(got, "| duties | 2 | 4 | 10 | 5 | 12 | 1.20 | 0 |") {
		t.Error(got)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Rounds: 1, Alone: 1, Flood: 1, Changes: 1, FloodChanges: 1, Effort: 1, Output: "x", Command: []string{"x"}}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"rounds": func(o *Options) { o.Rounds = 0 }, "alone": func(o *Options) { o.Alone = 0 },
		"changes": func(o *Options) { o.FloodChanges = 0 }, "output": func(o *Options) { o.Output = "" },
		"command": func(o *Options) { o.Command = nil },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}
