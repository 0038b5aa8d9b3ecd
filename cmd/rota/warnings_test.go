package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
)

func TestPrintWarnings(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var events []corev1.Event
	for n := range maxWarnings + 3 {
		events = append(events, corev1.Event{
			EventTime: metav1.NewMicroTime(now.Add(-time.Duration(n) * 5 * time.Minute)), ReportingInstance: "web-0", Reason: "Lapsed", Message: fmt.Sprint("message ", n),
		})
	}
	for _, test := range []struct {
		name   string
		events []corev1.Event
		want   string
	}{
		{"none", nil, ""},
		{"an old one", []corev1.Event{{LastTimestamp: metav1.NewTime(now.Add(-61 * time.Minute))}}, ""},
		{"two", events[:2], "\nwarnings of the last hour:\n  5m0s ago  web-0  Lapsed  message 1\n  0s ago    web-0  Lapsed  message 0\n"},
	} {
		var out bytes.Buffer
		if err := printWarnings(&out, test.events, now); err != nil || out.String() != test.want {
			t.Errorf("%s: %v, got:\n%s\nwant:\n%s", test.name, err, out.String(), test.want)
		}
	}
	var out bytes.Buffer
	if err := printWarnings(&out, events, now); err != nil || strings.Count(out.String(), " ago ") != maxWarnings || !strings.Contains(out.String(), "3 older ones left out") {
		t.Errorf("%v, got:\n%s\nwant %d of %d", err, out.String(), maxWarnings, len(events))
	}
}

// What a member tells is what `rota status` finds.
func TestReadWarnings(t *testing.T) {
	cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
	for _, name := range []string{"test", "other"} {
		s, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name, Instance: "web-0", Report: func(what string, err error) { t.Error(what, err) }})
		if err != nil {
			t.Fatal(err)
		}
		s.Notify(t.Context(), member.Notify{Reason: "Expelled", Message: "quiet"})
		s.Notify(t.Context(), member.Notify{Reason: "NotJoining", Message: "no workers", Warning: true})
		s.Close()
	}
	events, err := readWarnings(t.Context(), cfg, namespace, "test")
	if err == nil && len(events) != 1 {
		err = errors.New("want one event")
	}
	if err != nil {
		t.Fatalf("%v: %v", err, events)
	}
	if e := events[0]; e.Reason != "NotJoining" || e.Message != "no workers" || e.ReportingInstance != "web-0" || time.Since(eventTime(e)) > time.Minute {
		t.Errorf("event %+v, want that of the member", e)
	}
}
