package dump

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/permission"
)

// Options configures Collect.
type Options struct {
	Rota types.NamespacedName
	// Logs includes the containers' logs. LogBytes bounds each.
	Logs     bool
	LogBytes int64
	// LogTimeout bounds the time for one log, by default 15 s, because a node may be dead.
	LogTimeout time.Duration
}

const (
	metricsTimeout = 5 * time.Second
	logTimeout     = 15 * time.Second
	metricsBytes   = 4 << 20
	// maxPods limits the Pods whose metrics and logs are read.
	maxPods = 100
	// atOnce is how many Pods are queried concurrently.
	atOnce = 4
)

// Collect adds everything about a rota in the cluster. found is true if the rota has any objects.
func Collect(ctx context.Context, client kubernetes.Interface, o Options, a *Archive) (found bool) {
	c := &collector{o: o, client: client, a: a}
	if v, err := client.Discovery().ServerVersion(); err == nil {
		c.add("server-version.json", v)
	} else {
		a.Fail("the API server's version", err)
	}
	t, hasTable := c.table(ctx)
	members, hasLeases := c.leases(ctx)
	c.fence(ctx)
	for _, m := range t.Members {
		members = append(members, m.Pod)
	}
	for _, e := range t.Expels {
		members = append(members, e.Pod)
	}
	pods, replicaSets := c.pods(ctx, members)
	c.events(ctx, append(replicaSets, podNames(pods)...))
	c.words(ctx, pods[:min(len(pods), maxPods)])
	if n := len(pods); n > maxPods {
		a.Fail("metrics and logs of some Pods", fmt.Errorf("there are %d Pods, and only %d are included", n, maxPods))
	}
	return hasTable || hasLeases
}

type collector struct {
	o      Options
	client kubernetes.Interface
	a      *Archive
	// silent are the names of Pods whose logs timed out.
	silent sync.Map
}

func (c *collector) add(name string, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		c.a.Fail(name, err)
		return
	}
	c.a.Add(name, append(data, '\n'))
}

// refused adds the missing rule to a permission error.
func (c *collector) refused(err error, group, resource, verb string) error {
	return permission.Refused(err, permission.Error{
		Namespace: c.o.Rota.Namespace, Group: group, Resource: resource, Verb: verb,
	})
}

// about returns the safe part of an object's metadata. Annotations may contain anything, such as manifests with
// passwords that kubectl applied, so only the rota's annotations are included.
func about(m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: m.Labels,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers,
	}
	for key, value := range m.Annotations {
		if strings.HasPrefix(key, names.Prefix+"/") {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	return out
}

// table adds the table. It returns an empty table if none can be read.
func (c *collector) table(ctx context.Context) (t *table.Table, found bool) {
	t = &table.Table{}
	cm, err := c.client.CoreV1().ConfigMaps(c.o.Rota.Namespace).Get(ctx, c.o.Rota.Name, metav1.GetOptions{})
	switch {
	case gone(err):
		c.a.Fail("table", fmt.Errorf("there is no ConfigMap %s", c.o.Rota))
		return t, false
	case err != nil:
		c.a.Fail("table", c.refused(err, "", "configmaps", "get"))
		return t, false
	case cm.Labels[names.LabelRota] != c.o.Rota.Name:
		c.a.Fail("table", fmt.Errorf("ConfigMap %s is not a rota's: it has no label %s=%s, so its contents are left out",
			c.o.Rota, names.LabelRota, c.o.Rota.Name))
		return t, false
	}
	c.add("table.json", &corev1.ConfigMap{ObjectMeta: about(&cm.ObjectMeta), Data: cm.Data})
	read, err := table.Decode(cm.Data)
	if err != nil {
		c.a.Fail("the table's text, which is in table.json", err)
		return t, true
	}
	return read, true
}

// leases adds the members' Leases and reports, and returns the names of the Leases' Pods.
func (c *collector) leases(ctx context.Context) (pods []string, found bool) {
	for name, label := range map[string]string{"leases.json": names.LabelRota, "reports.json": names.LabelCoverage} {
		list, err := c.client.CoordinationV1().Leases(c.o.Rota.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: label + "=" + c.o.Rota.Name})
		if err != nil {
			c.a.Fail(name, c.refused(err, "coordination.k8s.io", "leases", "list"))
			continue
		}
		for i := range list.Items {
			l := &list.Items[i]
			l.ObjectMeta = about(&l.ObjectMeta)
			if id := ptr.Deref(l.Spec.HolderIdentity, ""); strings.Contains(id, "-") {
				pods = append(pods, id[:strings.LastIndex(id, "-")]) // a member's ID is its Pod's name and a suffix
			}
		}
		c.add(name, list.Items)
		found = found || len(list.Items) > 0
	}
	return pods, found
}

// fence adds the policies and bindings of the rota's fence.
func (c *collector) fence(ctx context.Context) {
	api := c.client.AdmissionregistrationV1()
	var policies []admissionregistrationv1.ValidatingAdmissionPolicy
	var bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, name := range []string{fence.Options{Rota: c.o.Rota}.ObjectName(), fence.KeeperName} {
		policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			policy.ObjectMeta = about(&policy.ObjectMeta)
			policies = append(policies, *policy)
		} else if !gone(err) {
			c.a.Fail("policy "+name, err)
		}
		binding, err := api.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			binding.ObjectMeta = about(&binding.ObjectMeta)
			bindings = append(bindings, *binding)
		} else if !gone(err) {
			c.a.Fail("binding "+name, err)
		}
	}
	c.add("fence.json", map[string]any{"policies": policies, "bindings": bindings})
}

// events adds the events of the table and of the named objects.
func (c *collector) events(ctx context.Context, objects []string) {
	list, err := c.client.CoreV1().Events(c.o.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.a.Fail("events.json", c.refused(err, "", "events", "list"))
		return
	}
	events := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Name != c.o.Rota.Name && !slices.Contains(objects, e.InvolvedObject.Name)
	})
	for i := range events {
		events[i].ObjectMeta = about(&events[i].ObjectMeta)
	}
	c.add("events.json", events)
}

// words adds the Pods' logs and metrics. It starts with logs, and with ready Pods, because they are the most useful if
// time runs out. A Pod on a dead node stays in phase Running for long, so a Pod whose log timed out is not queried
// again.
func (c *collector) words(ctx context.Context, pods []corev1.Pod) {
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		switch first := ready(&a); {
		case first == ready(&b):
			return 0
		case first:
			return -1
		}
		return 1
	})
	ask := func(of func(context.Context, *corev1.Pod)) {
		var group errgroup.Group
		group.SetLimit(atOnce)
		for i := range pods {
			group.Go(func() error {
				of(ctx, &pods[i])
				return nil
			})
		}
		_ = group.Wait()
	}
	if c.o.Logs {
		ask(c.logs)
	}
	ask(c.metrics)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// metrics adds a Pod's metrics through the API server's proxy.
func (c *collector) metrics(ctx context.Context, pod *corev1.Pod) {
	scheme, port := metricsPort(pod)
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	what := fmt.Sprintf("metrics of %s by port %s through the API server's proxy", pod.Name, port.String())
	if _, silent := c.silent.Load(pod.Name); silent {
		c.a.Fail(what, errors.New("its log timed out"))
		return
	}
	if pod.Status.Phase != corev1.PodRunning {
		c.a.Fail(what, fmt.Errorf("the Pod is %s", strings.ToLower(string(pod.Status.Phase))))
		return
	}
	stream, err := c.client.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").
		Name(scheme + pod.Name + ":" + port.String()).SubResource("proxy").Suffix("metrics").Stream(ctx)
	if err != nil {
		c.a.Fail(what, c.refused(err, "", "pods/proxy", "get"))
		return
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(io.LimitReader(stream, metricsBytes))
	c.a.Fail(what, err)
	// Another program may serve that port.
	if !bytes.Contains(data, []byte("rota_")) {
		c.a.Fail(what, errors.New("the answer has none of Rota's metrics"))
		return
	}
	c.a.Add("metrics/"+pod.Name+".txt", data)
}

// metricsPort guesses the port of a Pod's metrics: a port with such a name, or controller-runtime's default.
func metricsPort(pod *corev1.Pod) (scheme string, port intstr.IntOrString) {
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if !strings.Contains(p.Name, "metrics") {
				continue
			}
			if strings.Contains(p.Name, "https") {
				scheme = "https:"
			}
			return scheme, intstr.FromInt32(p.ContainerPort)
		}
	}
	return "", intstr.FromInt32(8080)
}

// logs adds the last lines of a Pod's containers and of their previous runs.
func (c *collector) logs(ctx context.Context, pod *corev1.Pod) {
	for _, s := range statuses(&pod.Status) {
		for _, previous := range []bool{false, true} {
			if previous && s.RestartCount == 0 {
				continue
			}
			name := fmt.Sprintf("logs/%s.%s.log", pod.Name, s.Name)
			if previous {
				name = fmt.Sprintf("logs/%s.%s.previous.log", pod.Name, s.Name)
			}
			if _, silent := c.silent.Load(pod.Name); silent {
				c.a.Fail(name, errors.New("another log of the Pod timed out"))
				continue
			}
			c.log(ctx, name, pod, &corev1.PodLogOptions{
				// limitBytes alone would return the first bytes.
				Container: s.Name, Previous: previous, Timestamps: true, TailLines: ptr.To(int64(5000)),
			})
		}
	}
}

func (c *collector) log(ctx context.Context, name string, pod *corev1.Pod, o *corev1.PodLogOptions) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.o.LogTimeout, logTimeout))
	defer cancel()
	data, err := c.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if ctx.Err() != nil {
		c.silent.Store(pod.Name, true)
	}
	if err != nil {
		c.a.Fail(name, c.refused(err, "", "pods/log", "get"))
		return
	}
	defer func() { _ = data.Close() }()
	text, err := tail(data, c.o.LogBytes)
	c.a.Fail(name, err)
	c.a.Add(name, text)
}

// tail reads everything, and returns the last whole lines that fit into limit bytes.
func tail(r io.Reader, limit int64) ([]byte, error) {
	var last []byte
	cut := false
	part := make([]byte, 64<<10)
	for {
		n, err := r.Read(part)
		last = append(last, part[:n]...)
		if int64(len(last)) > 2*limit || err != nil && int64(len(last)) > limit {
			last = append(last[:0], last[int64(len(last))-limit:]...)
			cut = true
		}
		if err == nil {
			continue
		}
		if line := bytes.IndexByte(last, '\n'); cut && line >= 0 {
			last = last[line+1:]
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return last, err
	}
}
