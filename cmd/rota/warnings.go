package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// warningAge is how far back `rota status` looks: an API server keeps events for as long by default. maxWarnings is
	// how many warnings it prints.
	warningAge  = time.Hour
	maxWarnings = 10
)

// readWarnings returns the warnings among the members' events. Elsewhere, only the process itself shows that it waits
// before it joins, or that its reconciles all fail.
func readWarnings(ctx context.Context, cfg *rest.Config, namespace, name string) ([]corev1.Event, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{
			"involvedObject.kind": "ConfigMap", "involvedObject.name": name, "type": corev1.EventTypeWarning,
		}.String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func eventTime(e corev1.Event) time.Time {
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

// printWarnings prints the latest warnings, the oldest first.
func printWarnings(to io.Writer, warnings []corev1.Event, now time.Time) error {
	old := func(e corev1.Event) bool { return now.Sub(eventTime(e)) > warningAge }
	warnings = slices.DeleteFunc(slices.Clone(warnings), old)
	if len(warnings) == 0 {
		return nil
	}
	slices.SortFunc(warnings, func(a, b corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	heading := "warnings of the last hour"
	if left := len(warnings) - maxWarnings; left > 0 {
		heading += fmt.Sprintf(" (%d older ones left out)", left)
		warnings = warnings[left:]
	}
	if _, err := fmt.Fprintf(to, "\n%s:\n", heading); err != nil {
		return err
	}
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, e := range warnings {
		_, _ = fmt.Fprintf(out, "  %v ago\t%s\t%s\t%s\n", now.Sub(eventTime(e)).Round(time.Second),
			cmp.Or(e.ReportingInstance, e.Source.Host, "-"), e.Reason, e.Message)
	}
	return out.Flush()
}
