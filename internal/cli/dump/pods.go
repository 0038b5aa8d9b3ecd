package dump

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is the included part of a Pod: no environment, arguments or volumes of its containers.
type Pod struct {
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Node       string            `json:"nodeName,omitempty"`
	Account    string            `json:"serviceAccountName,omitempty"`
	Grace      *int64            `json:"terminationGracePeriodSeconds,omitempty"`
	Containers []Container       `json:"containers"`
	Status     corev1.PodStatus  `json:"status"`
}

// Container is the included part of a container.
type Container struct {
	Name      string                      `json:"name"`
	Image     string                      `json:"image"`
	Ports     []corev1.ContainerPort      `json:"ports,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources"`
	// Env are the names of variables, without their values.
	Env []string `json:"envNames,omitempty"`
}

// ReplicaSet is the included part of a ReplicaSet, without its template.
type ReplicaSet struct {
	Metadata metav1.ObjectMeta       `json:"metadata"`
	Replicas *int32                  `json:"replicas,omitempty"`
	Status   appsv1.ReplicaSetStatus `json:"status"`
}

// pods adds the members' Pods, and other Pods of the same workloads, which may not have joined. It returns them, and
// the names of their ReplicaSets.
func (c *collector) pods(ctx context.Context, members []string) (out []corev1.Pod, replicaSets []string) {
	list, err := c.client.CoreV1().Pods(c.o.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.a.Fail("pods.json", c.refused(err, "", "pods", "list"))
		return nil, nil
	}
	sets, err := c.client.AppsV1().ReplicaSets(c.o.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.a.Fail("replicasets.json", c.refused(err, "apps", "replicasets", "list"))
		sets = &appsv1.ReplicaSetList{}
	}
	// owners are the UIDs of the members' workloads, such as ReplicaSets and their Deployments.
	owners := map[types.UID]bool{}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && slices.Contains(members, list.Items[i].Name) {
			owners[owner.UID] = true
		}
	}
	for i := range sets.Items {
		if owner := metav1.GetControllerOf(&sets.Items[i]); owner != nil && owners[sets.Items[i].UID] {
			owners[owner.UID] = true
		}
	}
	shownSets := []ReplicaSet{}
	for i := range sets.Items {
		s := &sets.Items[i]
		if owner := metav1.GetControllerOf(s); owner != nil && owners[owner.UID] || owners[s.UID] {
			owners[s.UID] = true
			replicaSets = append(replicaSets, s.Name)
			shownSets = append(shownSets, ReplicaSet{about(&s.ObjectMeta), s.Spec.Replicas, s.Status})
		}
	}
	shown := []Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		owner := metav1.GetControllerOf(p)
		if slices.Contains(members, p.Name) || owner != nil && owners[owner.UID] {
			out = append(out, *p)
			shown = append(shown, podOf(p, c.o.Logs))
		}
	}
	c.add("pods.json", shown)
	c.add("replicasets.json", shownSets)
	return out, replicaSets
}

// podOf converts a Pod. Termination messages may contain the last lines of logs, so they depend on logs.
func podOf(p *corev1.Pod, logs bool) Pod {
	out := Pod{
		Metadata: about(&p.ObjectMeta), Node: p.Spec.NodeName, Account: p.Spec.ServiceAccountName,
		Grace: p.Spec.TerminationGracePeriodSeconds, Containers: []Container{}, Status: p.Status,
	}
	for _, c := range p.Spec.Containers {
		shown := Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources}
		for _, e := range c.Env {
			shown.Env = append(shown.Env, e.Name)
		}
		out.Containers = append(out.Containers, shown)
	}
	if !logs {
		out.Status = *p.Status.DeepCopy()
		for _, s := range statuses(&out.Status) {
			for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				if ended != nil {
					ended.Message = ""
				}
			}
		}
	}
	return out
}

// statuses returns the statuses of all containers, including sidecars, which are init containers, and ephemeral ones.
func statuses(s *corev1.PodStatus) (all []*corev1.ContainerStatus) {
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

func podNames(pods []corev1.Pod) (names []string) {
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}
