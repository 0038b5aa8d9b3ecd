package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/check"
)

// A log is read on from where it was read last, and a line that is being written is left for later.
func TestAuditTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	tail := &auditTail{path: path}
	line := func(version int) string {
		return fmt.Sprintf(`{"stage":"ResponseComplete","verb":"patch","requestURI":"/x","user":{"username":%q,"extra":{"authentication.kubernetes.io/pod-name":["web-1"]}},`+
			`"objectRef":{"resource":"websites","namespace":"n","name":"s"},"responseStatus":{"code":200},"responseObject":{"metadata":{"uid":"u","resourceVersion":"%d"}}}`+"\n",
			podUser+"chaos", version)
	}
	read := func(text string) (versions []string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		var log check.Log
		if err := tail.read(&log, "chaos"); err != nil {
			t.Fatal(err)
		}
		for _, w := range log.Writes {
			if pod, ok := podOf(w.User); !ok || pod != "web-1" {
				t.Errorf("written by %q, %t", pod, ok)
			}
			versions = append(versions, w.Object.Metadata.ResourceVersion)
		}
		return versions
	}
	second := line(2)
	for i, step := range []struct {
		text string
		want []string
	}{{line(1) + second[:50], []string{"1"}}, {"", nil}, {second[50:] + line(3), []string{"2", "3"}}} {
		if diff := cmp.Diff(step.want, read(step.text)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestPodOf(t *testing.T) {
	for user, want := range map[string]string{
		userOf("chaos", "web-1"): "web-1", userOf("chaos-uid", "web-2"): "web-2", "rota-chaos": "", "system:serviceaccount:other:chaos/web-1": "", podUser + "chaos": "",
	} {
		if got, member := podOf(user); got != want || member != (want != "") {
			t.Errorf("%s: %q, %t; want %q", user, got, member, want)
		}
	}
	if got := podOfProcess(processName("/x/web-1.12.journal")); got != "web-1" {
		t.Errorf("the Pod of a journal is %q", got)
	}
}

// Only a version with another status than the one before says who wrote it.
func TestRecorderTellsWhoWroteAStatus(t *testing.T) {
	r := newRecorder(nil)
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
