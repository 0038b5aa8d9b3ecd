package engine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// selecting lists what its client does with another selector.
type selecting struct{ typed.SecretInterface }

func (l selecting) List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	o.LabelSelector = "app=web"
	return l.SecretInterface.List(ctx, o)
}

// A factory that lists less than the client is refused: the controller would work on objects that it must not touch.
func TestFilteredFactories(t *testing.T) {
	inProd := informers.WithNamespace("prod")
	tweaked := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=web" })
	for _, client := range []kubernetes.Interface{
		kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1"}), fake.NewClientset(),
	} {
		all, prod := client.CoreV1().Secrets(metav1.NamespaceAll), client.CoreV1().Secrets("prod")
		for name, test := range map[string]struct {
			option informers.SharedInformerOption
			client typed.SecretInterface
			words  []string // nil: no error
		}{
			"a namespace":                   {inProd, all, []string{`WithNamespace("prod")`, "all namespaces"}},
			"another namespace":             {inProd, client.CoreV1().Secrets("test"), []string{"prod", "lists namespace test"}},
			"the client's namespace":        {inProd, prod, nil},
			"options":                       {tweaked, all, []string{"WithTweakListOptions", "a value of your own"}},
			"options that the client knows": {tweaked, selecting{all}, nil},
			"neither":                       {informers.WithNamespace(""), prod, nil},
		} {
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, test.option)
			_, err := ShareInformer(testRota(t), factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
				test.client)
			if (err == nil) != (test.words == nil) {
				t.Errorf("%T, %s: error %v, want one: %t", client, name, err, test.words != nil)
				continue
			}
			for _, word := range append(test.words, "") {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%T, %s: the error does not say %q: %v", client, name, word, err)
				}
			}
		}
	}
}
