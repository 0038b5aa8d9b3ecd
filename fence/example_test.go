package fence_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/fence"
)

func ExamplePolicy() {
	policy, binding, err := fence.Policy(fence.Options{
		Rota:           types.NamespacedName{Namespace: "operators", Name: "website"},
		ServiceAccount: types.NamespacedName{Namespace: "operators", Name: "website-operator"},
		Resources:      []schema.GroupResource{{Group: "web.example.com", Resource: "websites"}, {Resource: "services"}},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(policy.Name)
	fmt.Println(policy.Spec.MatchConditions[0].Expression)
	fmt.Println(binding.Spec.ParamRef.Namespace, binding.Spec.ParamRef.Name, *binding.Spec.ParamRef.ParameterNotFoundAction)
	// Output:
	// rota-fence.operators.website
	// request.userInfo.username == 'system:serviceaccount:operators:website-operator'
	// operators website Allow
}
