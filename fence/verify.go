package fence

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// ErrUnverified is wrapped by errors of Verify that leave open whether the fence works.
var ErrUnverified = errors.New("cannot tell whether the fence works")

// epochSeen matches a refusal and captures its epoch.
var epochSeen = regexp.MustCompile(`the fence of rota .* is not a member in epoch (\d+):`)

// Verify tests, until ctx ends, whether an API server refuses writes of Pods that are not members and uses the current
// table. It returns nil as soon as it does.
//
// The test is an empty patch of some object of the fenced kinds, as a dry run. It impersonates the ServiceAccount in a
// Pod that does not exist. Behind a load balancer, the result is about one of the API servers only.
func Verify(ctx context.Context, cfg *rest.Config, o Options) error {
	cfg = rest.CopyConfig(cfg)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("fence of rota %s: %w", o.Rota, err)
	}
	try, err := o.probe(ctx, cfg, client)
	if err != nil {
		return fmt.Errorf("fence of rota %s: %w: %w", o.Rota, ErrUnverified, err)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := error(nil); ; {
		err := o.look(ctx, client, try)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil || last == nil: // otherwise the error means only that ctx ended
			last = err
		}
		if ctx.Err() == nil && errors.Is(err, ErrUnverified) {
			return fmt.Errorf("fence of rota %s: %w", o.Rota, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fence of rota %s: %w", o.Rota, last)
		case <-tick.C:
		}
	}
}

// look tests once. It reads the table after the attempt, since judge compares the two.
func (o Options) look(ctx context.Context, client kubernetes.Interface, try func(context.Context) error) error {
	seen := try(ctx)
	cm, err := client.CoreV1().ConfigMaps(o.Rota.Namespace).Get(ctx, o.Rota.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: there is no table yet", ErrUnverified)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnverified, err)
	case cm.Annotations[Annotation] == Off:
		return fmt.Errorf("%w: it is off, by annotation", ErrUnverified)
	}
	return judge(seen, cm.Data)
}

// judge compares the response to the probe with the table, which was read later.
func judge(seen error, data map[string]string) error {
	now, err := table.Decode(data)
	if err != nil {
		return err
	}
	var epoch uint64
	if seen != nil {
		match := epochSeen.FindStringSubmatch(seen.Error())
		if !apierrors.IsForbidden(seen) || match == nil {
			return fmt.Errorf("%w: %w", ErrUnverified, seen)
		}
		epoch, _ = strconv.ParseUint(match[1], 10, 64) // only digits match
	}
	switch {
	case seen == nil:
		return errors.New("the API server admits the write of a Pod that is not a member; " + blind)
	case epoch < now.Epoch:
		return fmt.Errorf("the API server uses the table of epoch %d, but the current one is %d; %s",
			epoch, now.Epoch, blind)
	}
	return nil
}

const blind = "if it stays so, it has stopped following ConfigMaps and has to be restarted, see docs/deploy.md"

// probe returns a function that writes as a Pod that does not exist.
func (o Options) probe(ctx context.Context, cfg *rest.Config, client kubernetes.Interface,
) (func(context.Context) error, error) {
	groups, err := restmapper.GetAPIGroupResources(client.Discovery())
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	reader, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", o.ServiceAccount.Namespace, o.ServiceAccount.Name),
		Extra:    map[string][]string{podExtra + "pod-uid": {"probe"}, podExtra + "pod-name": {"probe"}},
	}
	writer, err := dynamic.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	for _, r := range o.Resources {
		gvr, err := mapper.ResourceFor(r.WithVersion(""))
		if err != nil {
			continue // Check reports kinds that do not exist
		}
		obj, err := o.any(ctx, reader, gvr)
		if err != nil {
			return nil, err
		}
		if obj == nil {
			continue
		}
		return func(ctx context.Context) error {
			objects := writer.Resource(gvr).Namespace(obj.GetNamespace())
			options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
			_, err := objects.Patch(ctx, obj.GetName(), types.MergePatchType, []byte("{}"), options)
			return err
		}, nil
	}
	return nil, errors.New("there is no object of the fenced kinds to try it on")
}

// any returns an object that does not belong to the rota itself, or nil if there is none among the first 50.
func (o Options) any(ctx context.Context, reader dynamic.Interface, gvr schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	list, err := reader.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 50})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		obj := &list.Items[i]
		name := obj.GetName()
		own := name == o.Rota.Name || strings.HasPrefix(name, names.Lease(o.Rota.Name, ""))
		if obj.GetNamespace() != o.Rota.Namespace || !own {
			return obj, nil
		}
	}
	return nil, nil // finding none is not an error
}
