package rig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
)

func TestPodOf(t *testing.T) {
	a := accounts{Cluster: &Cluster{Namespace: "rota-chaos"}}
	for user, want := range map[string]string{
		a.userOf("chaos", "web-1"): "web-1", a.userOf("chaos-uid", "web-2"): "web-2", "rota-chaos": "", "system:serviceaccount:other:chaos/web-1": "", a.podUser() + "chaos": "",
	} {
		if got, member := a.podOf(user); got != want || member != (want != "") {
			t.Errorf("%s: %q, %t; want %q", user, got, member, want)
		}
	}
	if got := PodOf(processName("/x/web-1.12.journal")); got != "web-1" {
		t.Errorf("the Pod of a journal is %q", got)
	}
}

// Only a version with another status than the one before says who wrote it.
func TestRecorderTellsWhoWroteAStatus(t *testing.T) {
	r := newRecorder(nil, "sites").sites
	add := func(uid, version, status string) {
		r.add(&webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: types.UID(uid), ResourceVersion: version}, Status: webv1.WebsiteStatus{Checksum: status}})
	}
	add("u", "1", "")
	add("u", "2", "web-1.1 7")
	add("u", "3", "web-1.1 7") // its specification changed
	add("other", "4", "web-1.1 7")
	add("u", "5", "web-1.1 8")
	versions, gaps := r.take()
	var got []string
	for _, v := range versions {
		got = append(got, v.Number+" "+v.Process)
	}
	if diff := cmp.Diff([]string{"1 ", "2 web-1.1", "3 ", "4 web-1.1", "5 web-1.1"}, got); diff != "" || gaps != 0 {
		t.Errorf("%d gaps (-want +got):\n%s", gaps, diff)
	}
	if versions, _ := r.take(); len(versions) != 0 {
		t.Errorf("taken twice: %v", versions)
	}
}

// The same for what duties write to.
func TestRecorderTellsWhoDidADuty(t *testing.T) {
	r := newRecorder(nil, "sites")
	for _, v := range [][2]string{{"1", ""}, {"2", "web-1.1 3.0"}, {"3", "web-2.1 1.0"}, {"4", "web-2.1 1.0"}} {
		obj := dutyObject("sites", functionDuty)
		obj.ResourceVersion, obj.Data = v[0], map[string]string{dutyField: v[1]}
		r.duties.add(obj)
	}
	sites, duties, gaps := r.take()
	var got []string
	for _, v := range duties {
		got = append(got, v.Name+" "+v.Number+" "+v.Process)
	}
	want := []string{"pages 1 ", "pages 2 web-1.1", "pages 3 web-2.1", "pages 4 "}
	if diff := cmp.Diff(want, got); diff != "" || len(sites) != 0 || gaps != 0 {
		t.Errorf("%d Websites, %d gaps (-want +got):\n%s", len(sites), gaps, diff)
	}
}
