package demo

import (
	"context"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

func autoscale() *Autoscale {
	return &Autoscale{
		Scaler: autoscalingv2.HorizontalPodAutoscaler{
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 6},
		},
		Sync: time.Second, Burst: 10, BurstLength: time.Second, Limit: time.Second,
		Metrics: func(context.Context, *controlplane.ControlPlane, func() map[string]string) error { return nil },
	}
}

func TestAutoscaleOptions(t *testing.T) {
	options := func() Options { return Options{Objects: 10, Rate: 1, Slots: slot.DefaultCount, Autoscale: autoscale()} }
	good := options()
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Options){
		"must be given":     func(o *Options) { o.Objects = 0 },
		"nobody serves":     func(o *Options) { o.Autoscale.Metrics = nil },
		"sync 1ms":          func(o *Options) { o.Autoscale.Sync = time.Millisecond },
		"burst 0":           func(o *Options) { o.Autoscale.Burst = 0 },
		"from 2 to 2":       func(o *Options) { o.Autoscale.Scaler.Spec.MaxReplicas = 2 },
		"no kubeconfig, mi": func(o *Options) { o.Migrate = true },
	} {
		o := options()
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestScalingVerdicts: only one way up to the most replicas, and one down to the fewest, is good.
func TestScalingVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		wanted  []int32
		members int
		want    string // of the failures; "": none
	}{
		"up and down":       {[]int32{2, 2, 3, 6, 6, 5, 4, 2}, 2, ""},
		"not to the most":   {[]int32{2, 5, 2}, 2, "to 5 replicas"},
		"never":             {[]int32{2, 2}, 2, "to 2 replicas in the burst, not to 6; it changed its direction: 0 ways"},
		"it flaps":          {[]int32{2, 6, 5, 6, 2}, 2, "4 ways"},
		"it flaps at last":  {[]int32{2, 6, 2, 3}, 3, "3 ways up or down, not 2; 3 members"},
		"a member too many": {[]int32{2, 6, 2}, 3, "3 members"},
	} {
		e := &engine{o: &Options{Autoscale: autoscale()}, phases: []*phaseRun{{name: "grow", start: time.Minute}}}
		for i, n := range c.wanted {
			e.scaling = append(e.scaling, Scaled{Wanted: n, at: time.Minute + time.Duration(i)*time.Second})
		}
		r := &Report{Members: c.members}
		e.judgeScaling(r)
		var bad []string
		for _, v := range r.scalingVerdicts() {
			if !v.Good {
				bad = append(bad, v.No)
			}
		}
		text := strings.Join(bad, "; ")
		if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		if last := r.Scaling[len(r.Scaling)-1]; last.Seconds != float64(len(c.wanted)-1) {
			t.Errorf("%s: the last change was %v s after the burst began", name, last.Seconds)
		}
	}
}
