package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// everybody wants all, and failures those alone.
type everybody struct{}

func (everybody) Name() string           { return "all" }
func (everybody) Wants(notice.Type) bool { return true }

type failures struct{}

func (failures) Name() string             { return "failures" }
func (failures) Wants(t notice.Type) bool { return t == notice.Failing }

var began = time.Unix(1_000_000, 0)

// story is the life of an object as decide sees it.
type story struct {
	t     *testing.T
	rules rules
	rec   *record
	now   time.Time
}

func newStory(t *testing.T, events ...notice.Type) *story {
	t.Helper()
	if len(events) == 0 {
		events = notice.Types
	}
	return &story{t: t, now: began.Add(time.Hour), rules: rules{
		kind: &config.Kind{APIVersion: "v1", Kind: "Pod", Events: events}, since: began,
		destinations: []wanter{everybody{}, failures{}},
	}}
}

func obj(uid types.UID, fingerprint, reason string) *seen {
	return &seen{
		object: notice.Object{Kind: "Pod", Name: "web", UID: uid}, version: "7", created: began.Add(time.Minute),
		fingerprint: fingerprint, health: health{reason: reason},
	}
}

// see lets an hour less its minutes pass, decides, and checks what is told now.
func (s *story) see(o *seen, want ...string) decision {
	s.t.Helper()
	s.now = s.now.Add(time.Second)
	d := s.rules.decide(o, s.rec, s.now)
	var got []string
	if d.record != nil {
		had := map[string]bool{}
		if s.rec != nil {
			for _, e := range s.rec.Outbox {
				had[e.ID] = true
			}
		}
		for _, e := range d.record.Outbox {
			if !had[e.ID] {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Object.UID, e.Type, e.Reason)))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("told (-want +got):\n%s", diff)
	}
	s.rec = d.record
	if again := s.rules.decide(o, s.rec, s.now); again.write {
		s.t.Errorf("the same state is told again: %+v", again.record)
	}
	return d
}

// tell crosses out all that waits.
func (s *story) tell() {
	for _, e := range s.rec.clone().Outbox {
		for _, name := range e.To {
			s.rec.told(e.ID, name)
		}
	}
	if len(s.rec.Outbox) == 0 && s.rec.Gone {
		s.rec = nil
	}
}

func TestLife(t *testing.T) {
	s := newStory(t)
	if d := s.see(obj("1", "a", ""), "1 created"); !d.presence || !d.write {
		t.Errorf("got %+v", d)
	}
	if d := s.see(obj("1", "a", "")); d.write || d.presence {
		t.Errorf("got %+v", d)
	}
	s.see(obj("1", "b", ""), "1 changed")
	s.see(obj("1", "b", notice.CrashLoopBackOff), "1 failing CrashLoopBackOff")
	s.tell()
	s.see(obj("1", "b", ""))
	s.see(obj("1", "b", notice.CrashLoopBackOff))
	s.see(obj("1", "b", notice.ImagePullBackOff), "1 failing ImagePullBackOff")
	if d := s.see(nil, "1 deleted"); !d.presence {
		t.Errorf("got %+v", d)
	}
	if s.see(nil); s.rec == nil {
		t.Error("the deletion was not told, and its record is gone")
	}
	s.tell()
	if d := s.see(nil); d.record != nil {
		t.Errorf("got %+v", d)
	}
}

// TestRecovery: a failure is over once the object has been in order for a while. Then it is told anew.
func TestRecovery(t *testing.T) {
	s := newStory(t)
	s.see(obj("1", "a", notice.CrashLoopBackOff), "1 created", "1 failing CrashLoopBackOff")
	s.tell()
	since := s.now
	if !s.rec.FailingSince.Equal(since) {
		t.Errorf("it fails since %s, want %s", s.rec.FailingSince, since)
	}
	healthy := obj("1", "a", "")
	healthy.health.healthySince = s.now
	if d := s.see(healthy); d.again != settle-time.Second {
		t.Errorf("it is looked at again after %s, want %s", d.again, settle-time.Second)
	}
	s.see(obj("1", "a", notice.CrashLoopBackOff))
	if !s.rec.FailingSince.Equal(since) {
		t.Errorf("after a moment in order it fails since %s, want %s", s.rec.FailingSince, since)
	}
	s.now = s.now.Add(settle)
	if d := s.see(healthy); d.again != 0 || d.record == nil || !d.record.FailingSince.IsZero() {
		t.Errorf("got %+v", d)
	}
	first := "1-2-failing"
	s.see(obj("1", "a", notice.CrashLoopBackOff), "1 failing CrashLoopBackOff")
	if id := s.rec.Outbox[0].ID; id == first {
		t.Errorf("the second failure has the ID of the first: %s", id)
	}
}

// TestNamesake: an object that was replaced by one of its name is told as gone, also if nobody saw the moment between.
func TestNamesake(t *testing.T) {
	s := newStory(t)
	s.see(obj("1", "a", ""), "1 created")
	if d := s.see(obj("2", "b", ""), "1 deleted", "2 created"); !d.presence {
		t.Errorf("got %+v", d)
	}
	s.see(nil, "2 deleted")
	s.see(obj("3", "c", ""), "3 created")
}

func TestOlderObjects(t *testing.T) {
	old := obj("1", "a", "")
	old.created = began.Add(-time.Second)
	s := newStory(t)
	s.see(old)
	if s.rec == nil {
		t.Fatal("no record: its deletion could be missed")
	}
	s.see(nil, "1 deleted")

	s = newStory(t, notice.Created, notice.Failing)
	if d := s.see(old); d.write || d.record != nil {
		t.Errorf("got %+v, want no record where nothing has to be remembered", d)
	}
	old.health.reason = notice.CrashLoopBackOff
	s.see(old, "1 failing CrashLoopBackOff")
	s.tell()
	if d := s.see(nil); d.record != nil || !d.write {
		t.Errorf("got %+v, want the record deleted", d)
	}
}

// TestWantedLater: a kind whose changes were not told so far does not tell that everything has changed.
func TestWantedLater(t *testing.T) {
	s := newStory(t, notice.Created, notice.Deleted)
	s.see(obj("1", "", ""), "1 created")
	s.rules.kind.Events = notice.Types
	s.see(obj("1", "a", ""))
	s.see(obj("1", "b", ""), "1 changed")
}

func TestManyWait(t *testing.T) {
	s := newStory(t)
	s.see(obj("1", "a", ""), "1 created")
	for i := range 100 {
		s.see(obj("1", fmt.Sprint(i), ""), "1 changed")
	}
	if got := len(s.rec.Outbox); got != 2 {
		t.Errorf("%d notices wait, want that of the creation and that of the newest change", got)
	}
	dropped := 0
	for i := range 2 * mostNotices {
		s.now = s.now.Add(time.Second)
		d := s.rules.decide(obj(types.UID(fmt.Sprint("n", i)), "a", ""), s.rec, s.now)
		s.rec = d.record
		dropped += d.dropped["all"]
	}
	if total := 2 + 4*mostNotices; len(s.rec.Outbox) != mostNotices || dropped != total-mostNotices {
		t.Errorf("%d wait and %d were dropped, of %d", len(s.rec.Outbox), dropped, total)
	}
	if text, err := s.rec.encode(); err != nil || len(text) > 900_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestDestinations(t *testing.T) {
	s := newStory(t)
	s.see(obj("1", "a", notice.CrashLoopBackOff), "1 created", "1 failing CrashLoopBackOff")
	if got := s.rec.waiting(); !slices.Equal(got, []string{"all", "failures"}) {
		t.Errorf("got %q", got)
	}
	s.rec.told("1-1-created", "all")
	s.rec.told("1-2-failing", "all")
	if got := s.rec.waiting(); !slices.Equal(got, []string{"failures"}) || len(s.rec.Outbox) != 1 {
		t.Errorf("got %q", got)
	}
	text, err := s.rec.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if back.differs(s.rec) || back.Version != s.rec.Version {
		t.Errorf("wrote %+v, read %+v", s.rec, back)
	}
}

func TestLongMessages(t *testing.T) {
	s := newStory(t)
	o := obj("1", "a", notice.CrashLoopBackOff)
	o.health.message = strings.Repeat("ü", longestMessage)
	s.see(o, "1 created", "1 failing CrashLoopBackOff")
	if got := s.rec.Outbox[1].Message; len(got) > longestMessage+10 || !strings.HasSuffix(got, "ü …") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
