package rig

import (
	"context"
	_ "embed" // the audit policy
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/judge"
)

// FewCollections makes the servers collect garbage less often: by default that takes a quarter of their time, on the
// machine that they share with the replicas.
const FewCollections = "GOGC=400"

//go:embed audit-policy.yaml
var auditPolicy []byte

// Options say which API server to use.
type Options struct {
	// Name is the namespace of the rota, and the user agent of the tool. The Websites are in NAME-sites.
	Name string
	// Kubeconfig names a cluster to use, as an administrator. "": start a control plane.
	Kubeconfig string
	// AuditLogs are the audit logs of all of that cluster's API servers, if they can be read here.
	AuditLogs []string
	// ControlPlane says what to start. With Audit, the policy is the one that package check needs.
	ControlPlane controlplane.Options
	// Dir is a folder for the audit policy.
	Dir string
}

// Cluster is an API server that knows Websites.
type Cluster struct {
	// Plane is the control plane; nil where the cluster is somebody's own.
	Plane *controlplane.ControlPlane
	// Config and Client are an administrator's, for the last API server.
	Config *rest.Config
	Client client.WithWatch
	// Namespace is the rota's, Sites that of the Websites.
	Namespace, Sites string

	audits []*auditLog
	made   []client.Object
}

// auditLog is an audit log that is read up to an offset.
type auditLog struct {
	path   string
	offset int64
}

// Open starts or finds the API server, and makes the namespaces.
func Open(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{Namespace: o.Name, Sites: o.Name + "-sites"}
	if err := c.connect(ctx, &o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.Config.UserAgent = o.Name
	c.Config.WarningHandler = rest.NoWarnings{} // its certificates are none
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, err
	}
	if err := c.installCRD(ctx); err != nil {
		return nil, err
	}
	return c, c.Create(ctx, Namespace(c.Namespace), Namespace(c.Sites))
}

func (c *Cluster) connect(ctx context.Context, o *Options) (err error) {
	if o.Kubeconfig != "" {
		if c.Config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
		}
		c.Config.QPS = -1
		for _, path := range o.AuditLogs {
			c.audits = append(c.audits, &auditLog{path: path})
		}
		return nil
	}
	if o.ControlPlane.Audit {
		o.ControlPlane.AuditPolicy = filepath.Join(o.Dir, "audit-policy.yaml")
		if err := os.WriteFile(o.ControlPlane.AuditPolicy, auditPolicy, 0o600); err != nil {
			return err
		}
	}
	if c.Plane, err = controlplane.Start(ctx, o.ControlPlane); err != nil {
		return err
	}
	c.Config = c.Plane.ConfigFor(len(c.Plane.APIServers()) - 1)
	for _, path := range c.Plane.AuditLogs() {
		c.audits = append(c.audits, &auditLog{path: path})
	}
	return nil
}

func (c *Cluster) installCRD(ctx context.Context) error {
	if c.Plane != nil {
		return c.Plane.InstallCRDs(ctx, config.CRD)
	}
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "websites." + webv1.GroupVersion.Group}}
	crd.APIVersion, crd.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd.DeepCopy()); {
	case apierrors.IsNotFound(err):
		c.made = append(c.made, crd)
	case err != nil:
		return fmt.Errorf("look for the CRD of Websites: %w", err)
	}
	return controlplane.InstallCRDs(ctx, c.Config, config.CRD)
}

// Create creates objects. Close deletes those that are in no namespace from a cluster that is somebody's own.
func (c *Cluster) Create(ctx context.Context, objects ...client.Object) error {
	for _, obj := range objects {
		if err := c.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
		}
		if obj.GetNamespace() == "" {
			c.made = append(c.made, obj)
		}
	}
	return nil
}

// Clear removes the Websites from somebody's own cluster, and closes it. Nobody is left to remove their finalizers.
func (c *Cluster) Clear() error {
	var err error
	if c.Plane == nil {
		err = c.release()
	}
	return errors.Join(err, c.Close())
}

// release deletes all Websites and removes their finalizers.
func (c *Cluster) release() error {
	// The context of the run may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sites, err := c.Websites(ctx)
	for i := range sites {
		err = errors.Join(err, client.IgnoreNotFound(c.Client.Delete(ctx, &sites[i])))
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		err = errors.Join(err, client.IgnoreNotFound(c.Client.Patch(ctx, &sites[i], patch)))
	}
	return err
}

// Watch ends a run, with cancel, when the control plane ends, or with the first error of check, which it calls from
// time to time until ctx ends.
func (c *Cluster) Watch(ctx context.Context, cancel context.CancelCauseFunc, check func() error) {
	var gone <-chan struct{}
	if c.Plane != nil {
		gone = c.Plane.Done()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			cancel(errors.New("the control plane ended"))
			return
		case <-tick.C:
		}
		if err := check(); err != nil {
			cancel(err)
			return
		}
	}
}

// Close stops the control plane, or removes what was put into somebody's own cluster.
func (c *Cluster) Close() error {
	if c.Plane != nil {
		return c.Plane.Stop()
	}
	// The context of the run may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for i := len(c.made) - 1; i >= 0; i-- {
		errs = append(errs, client.IgnoreNotFound(c.Client.Delete(ctx, c.made[i])))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// Websites lists all Websites.
func (c *Cluster) Websites(ctx context.Context) ([]webv1.Website, error) {
	var list webv1.WebsiteList
	err := c.Client.List(ctx, &list, client.InNamespace(c.Sites))
	return list.Items, err
}

// Audited reports whether there is an audit log.
func (c *Cluster) Audited() bool { return len(c.audits) > 0 }

// ReadAudit adds to a log what the audit logs have gained since the last call. rota is the name of a rota.
func (c *Cluster) ReadAudit(log *judge.Log, rota string) error {
	for _, a := range c.audits {
		file, err := os.Open(a.path)
		if err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		_, err = file.Seek(a.offset, io.SeekStart)
		if err == nil {
			var read int64
			read, err = log.ReadAudit(file, types.NamespacedName{Namespace: c.Namespace, Name: rota})
			a.offset += read
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Namespace returns a namespace, to be created.
func Namespace(name string) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
