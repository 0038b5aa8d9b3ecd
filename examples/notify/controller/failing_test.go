package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestHealth(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, object string
		want         health
	}{
		{"crash loop", `{apiVersion: v1, kind: Pod, status: {containerStatuses: [
			{name: a, state: {running: {}}},
			{name: b, state: {waiting: {reason: CrashLoopBackOff, message: back-off 5m0s}}}]}}`,
			health{reason: notice.CrashLoopBackOff, message: "container b: back-off 5m0s"}},
		{"not ready any more", `{apiVersion: v1, kind: Pod, status: {containerStatuses: [
			{name: b, state: {waiting: {reason: CrashLoopBackOff, message: back-off 5m0s}}}],
			conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`,
			health{reason: notice.CrashLoopBackOff, message: "container b: back-off 5m0s", failingSince: since}},
		{"image of an init container", `{apiVersion: v1, kind: Pod, status: {initContainerStatuses: [
			{name: a, state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}}`,
			health{reason: notice.ImagePullBackOff, message: "container a: no such image"}},
		{"between two crashes", `{apiVersion: v1, kind: Pod, status: {containerStatuses: [
			{name: a, state: {terminated: {exitCode: 1}}}], conditions: [{type: Ready, status: "False"}]}}`, health{}},
		{"starting", `{apiVersion: v1, kind: Pod, status: {containerStatuses: [
			{name: a, state: {waiting: {reason: ContainerCreating}}}]}}`, health{}},
		{"ready", `{apiVersion: v1, kind: Pod, status: {conditions: [
			{type: Ready, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`, health{healthySince: since}},
		{"ending", `{apiVersion: v1, kind: Pod, metadata: {deletionTimestamp: "2026-01-02T03:04:05Z"}, status: {
			containerStatuses: [{name: b, state: {waiting: {reason: CrashLoopBackOff}}}]}}`, health{}},
		{"failed Job", `{apiVersion: batch/v1, kind: Job, status: {conditions: [
			{type: Failed, status: "True", reason: BackoffLimitExceeded, message: too often,
				lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`,
			health{reason: notice.JobFailed, message: "BackoffLimitExceeded: too often", failingSince: since}},
		{"Job that goes on", `{apiVersion: batch/v1, kind: Job, status: {conditions: [
			{type: Failed, status: "False"}, {type: Complete, status: "True"}]}}`, health{}},
		{"rollout", `{apiVersion: apps/v1, kind: Deployment, status: {conditions: [
			{type: Progressing, status: "True", reason: ReplicaSetUpdated}, {type: Available, status: "False"}]}}`, health{}},
		{"unavailable", `{apiVersion: apps/v1, kind: Deployment, status: {conditions: [
			{type: Progressing, status: "True", reason: NewReplicaSetAvailable},
			{type: Available, status: "False", message: too few, lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`,
			health{reason: notice.Unavailable, message: "too few", failingSince: since}},
		{"rollout that failed", `{apiVersion: apps/v1, kind: Deployment, status: {conditions: [
			{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}, {type: Available, status: "False"}]}}`,
			health{reason: notice.Unavailable}},
		{"available", `{apiVersion: apps/v1, kind: Deployment, status: {conditions: [
			{type: Available, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`, health{healthySince: since}},
		{"another kind", `{apiVersion: v1, kind: ConfigMap}`, health{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := healthOf(parse(t, c.object))
			if err != nil {
				t.Fatal(err)
			}
			got.healthySince = got.healthySince.UTC()
			got.failingSince = got.failingSince.UTC()
			c.want.healthySince = c.want.healthySince.UTC()
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(health{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := healthOf(parse(t, `{apiVersion: v1, kind: Pod, status: 7}`)); err == nil {
		t.Error("no error for what is no Pod")
	}
}

// TestFingerprint: metadata and status are no change.
func TestFingerprint(t *testing.T) {
	k := Kind{config: &config.Kind{APIVersion: "v1", Kind: "ConfigMap", Events: []notice.Type{notice.Changed}}}
	of := func(text string) string {
		s, err := k.see(parse(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return s.fingerprint
	}
	a := of(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: "1"}, data: {a: b, c: d}}`)
	if b := of(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: "2", labels: {a: b}}, data: {c: d, a: b},
		status: {a: b}}`); a != b {
		t.Error("metadata, status or the order make a difference")
	}
	if b := of(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b, c: e}}`); a == b || a == "" {
		t.Error("data makes no difference")
	}
}

// TestBehind: an informer that shows an older state than the record was compared with is not believed.
func TestBehind(t *testing.T) {
	at := func(uid, version string) *unstructured.Unstructured {
		return parse(t, `{metadata: {uid: "`+uid+`", resourceVersion: "`+version+`"}}`)
	}
	rec := &record{Object: notice.Object{UID: "1"}, Version: "10"}
	for _, c := range []struct {
		obj  *unstructured.Unstructured
		rec  *record
		want bool
	}{
		{at("1", "9"), rec, true}, {at("1", "10"), rec, false}, {at("1", "11"), rec, false}, {at("2", "9"), rec, false},
		{nil, rec, false}, {at("1", "9"), nil, false},
	} {
		if got := behind(c.obj, c.rec); got != c.want {
			t.Errorf("%v: got %t, want %t", c.obj, got, c.want)
		}
	}
}
