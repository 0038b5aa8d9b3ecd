package split

import (
	"fmt"
	"slices"
	"time"
)

// Form is how kube-controller-manager runs.
type Form string

// One is a single process. Three are the default groups of `rota split kcm`, with the flags of the single process, as
// the command writes them. Thirds are the same groups, each with a third of --kube-api-qps and --kube-api-burst.
const (
	One    Form = "one"
	Three  Form = "three"
	Thirds Form = "thirds"
)

// Scenario is a kind of flood, and how fast kube-controller-manager may talk to the API server.
type Scenario struct {
	Name string `json:"name"`
	// QPS and Burst are --kube-api-qps and --kube-api-burst of the single process.
	QPS   int `json:"qps"`
	Burst int `json:"burst"`
	// Quotas is how many ResourceQuotas are in the namespace of the garbage.
	Quotas int `json:"quotas"`
	// Whole has the flood last until all is collected, at most collectLimit.
	Whole bool `json:"whole"`
	// Forms are compared.
	Forms []Form `json:"forms"`
}

// collectLimit bounds a flood that lasts until all is collected.
const collectLimit = 3 * time.Minute

// Scenarios are all that are measured. Collection is too slow to wait for in those that are not Whole.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "default", QPS: 20, Burst: 30, Forms: []Form{One, Three, Thirds}},
		{Name: "fast", QPS: 1000, Burst: 2000, Whole: true, Forms: []Form{One, Three}},
		{Name: "quota", QPS: 20, Burst: 30, Quotas: 4, Forms: []Form{One, Three}},
		{Name: "fastquota", QPS: 100, Burst: 200, Quotas: 4, Forms: []Form{One, Three}},
	}
}

// Case is one measurement.
type Case struct {
	Scenario Scenario
	Form     Form
}

// String returns the case's name, such as default/one.
func (c Case) String() string { return fmt.Sprintf("%s/%s", c.Scenario.Name, c.Form) }

// cases returns a round's cases. The forms of a scenario follow each other. Every other round reverses their order, so
// that a machine that becomes busier does not favor one of them.
func (o *Options) cases(round int) (out []Case) {
	for _, s := range Scenarios() {
		forms := slices.Clone(s.Forms)
		if round%2 == 1 {
			slices.Reverse(forms)
		}
		for _, f := range forms {
			if c := (Case{s, f}); o.Only == nil || o.Only.MatchString(c.String()) {
				out = append(out, c)
			}
		}
	}
	return out
}
