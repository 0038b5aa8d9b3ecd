package split

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/apiservers/split"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// workNamespace has the Deployments, deskNamespace what the calls are about.
	workNamespace = "work"
	deskNamespace = "desk"
	// deskObjects are in deskNamespace.
	deskObjects = 10
)

// cluster is a control plane of one case and its kube-controller-managers.
type cluster struct {
	plane    *controlplane.ControlPlane
	config   *rest.Config
	client   client.WithWatch
	http     *http.Client // for what is no Kubernetes object
	managers []*manager
}

// openCluster starts a control plane with namespaces and the garbage in it, and then what the case runs.
func openCluster(ctx context.Context, o *Options, c Case, dir string) (_ *cluster, err error) {
	kube, err := build.Binary(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	servers, err := pinnedBinary(dir, o.Servers, kube)
	if err != nil {
		return nil, err
	}
	out := &cluster{}
	if out.plane, err = controlplane.Start(ctx, controlplane.Options{Binary: servers}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	out.config = out.plane.Config()
	out.config.WarningHandler = rest.NoWarnings{}
	if out.client, err = client.NewWithWatch(out.config, client.Options{Scheme: stage.Scheme()}); err != nil {
		return nil, err
	}
	if out.http, err = rest.HTTPClientFor(out.config); err != nil {
		return nil, err
	}
	if err := out.prepare(ctx, o, c); err != nil {
		return nil, fmt.Errorf("make the objects: %w", err)
	}
	return out, out.startManagers(ctx, o, c, kube, dir)
}

func (c *cluster) prepare(ctx context.Context, o *Options, of Case) error {
	for _, name := range []string{garbageNamespace, workNamespace, deskNamespace} {
		if err := c.client.Create(ctx, stage.Namespace(name)); err != nil {
			return err
		}
	}
	for i := range deskObjects {
		if err := c.client.Create(ctx, configMap(deskNamespace, "desk-"+strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return c.makeGarbage(ctx, o, of.Scenario)
}

func (c *cluster) startManagers(ctx context.Context, o *Options, of Case, kube, dir string) error {
	kubeconfig := filepath.Join(dir, "manager.kubeconfig")
	if err := c.plane.WriteUserKubeconfig(kubeconfig, "system:kube-controller-manager"); err != nil {
		return err
	}
	admin, err := c.plane.UserConfig("splitbench", "system:masters")
	if err != nil {
		return err
	}
	words := command(kubeconfig, filepath.Join(c.plane.Dir(), "pki"), of.Scenario)
	list, err := programs(of, words, split.Verified)
	if err != nil {
		return err
	}
	for _, p := range list {
		m, err := startManager(kube, dir, o.Manager, p, admin)
		if err != nil {
			return err
		}
		c.managers = append(c.managers, m)
	}
	for _, m := range c.managers {
		if err := m.healthy(ctx); err != nil {
			return err
		}
	}
	return c.works(ctx)
}

// close ends everything.
func (c *cluster) close() error {
	for _, m := range c.managers {
		m.process.Kill()
	}
	return c.plane.Stop()
}

// failure says which of the processes ended.
func (c *cluster) failure() error {
	var errs []error
	for _, m := range c.managers {
		errs = append(errs, m.process.Failure())
	}
	return errors.Join(errs...)
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}
}

func deployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{appLabel: name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
}
