package chart

import (
	"strings"
	"testing"
)

// TestRefused: bad values get an error that names the value and what is wrong with it.
func TestRefused(t *testing.T) {
	chart := load(t)
	for _, c := range []struct {
		path string
		to   any
		want []string
	}{
		{"rota.name", "Web Site", []string{"'/name'", "does not match pattern"}},
		{"rota.nmae", "website", []string{"additional properties 'nmae' not allowed"}},
		{"imgae", "x", []string{"additional properties 'imgae' not allowed"}},
		{"image.repository", "", []string{"'/image/repository'", "minLength"}},
		{"rota.delivery", "slotlabel", []string{"'/delivery'", "'Filter', 'SlotLabel', 'ShardSelector'"}},
		{"rota.replicas", "3", []string{"'/replicas'", "got string, want integer"}},
		{"rota.replicas", -1, []string{"'/replicas'", "minimum"}},
		{"rota.replicas", 5000, []string{"'/replicas'", "maximum"}},
		{"rota.strategy", "OnDelete", []string{"'/strategy'", "'RollingUpdate', 'Recreate'"}},
		{"rota.namespaces", []any{"a,b"}, []string{"'/namespaces/0'", "does not match pattern"}},
		{"rota.leaseDuration", "15", []string{"'/leaseDuration'", "does not match pattern"}},
		{"rota.leaderElectionID", "kube-system/website", []string{"'/leaderElectionID'", "does not match pattern"}},
		{"rota.kinds.sharded", []any{values{"resource": "websites"}},
			[]string{"'/kinds/sharded/0'", "missing property 'group'"}},
		{"rota.kinds.owned", []any{values{"group": "apps", "resource": "deployments/status"}},
			[]string{"'/kinds/owned/0/resource'", "does not match pattern"}},
		{"rota.podDisruptionBudget.maxUnavailable", 0, []string{"'/podDisruptionBudget/maxUnavailable'"}},
		{"rota.podDisruptionBudget.maxUnavailable", "0%", []string{"'/podDisruptionBudget/maxUnavailable'"}},
		{"rota.podDisruptionBudget.minAvailable", 1, []string{"additional properties 'minAvailable' not allowed"}},
		{"rota.security.runAsUser", 0, []string{"'/security/runAsUser'", "minimum"}},
		{"rota.security.privileged", true, []string{"additional properties 'privileged' not allowed"}},
		{"rota.topologySpread.topologyKeys", []any{}, []string{"'/topologySpread/topologyKeys'", "minItems"}},
		{"rota.fence", true, []string{"'/fence'", "got boolean, want object"}},
		{"rota.monitoring.serviceMonitor.interval", "soon", []string{"'/monitoring/serviceMonitor/interval'"}},
		{"state.accessMode", "ReadOnlyMany", []string{"'/state/accessMode'"}},
		{"state.size", "big", []string{"'/state/size'"}},

		{"rota.terminationGracePeriodSeconds", 55, []string{
			"rota.terminationGracePeriodSeconds is 55", "above rota.leaveTimeoutSeconds (25)",
			"gracefulShutdownTimeoutSeconds (30)",
		}},
		{"rota.leaveTimeoutSeconds", 30, []string{"rota.terminationGracePeriodSeconds is 60", "leaveTimeoutSeconds (30)"}},
		{"rota.kinds", values{"sharded": []any{}}, nil},
		{"rota", values{"delivery": "SlotLabel", "kinds": values{"sharded": []any{}}}, []string{
			"rota.kinds.sharded is empty", "delivery SlotLabel",
		}},
		{"rota", values{"fence": values{"enabled": true}, "kinds": values{"sharded": []any{}}}, []string{
			"rota.fence.enabled is true and rota.kinds.sharded is empty",
		}},
		{"rota.canary.enabled", true, []string{`rota.canary.build is ""`, "rota canary start"}},
		{"rota.canary", values{"enabled": true, "build": "v 2"}, []string{`rota.canary.build is "v 2"`}},
		{"rota.canary.replicas", 0, []string{"'/canary/replicas'", "minimum"}},
		{"rota", values{
			"canary": values{"enabled": true, "build": "v2"}, "autoscaling": values{"enabled": true, "cpuUtilization": 50},
		}, []string{"rota.canary.enabled and rota.autoscaling.enabled"}},
		{"rota", values{"canary": values{"enabled": true, "build": "v2"}, "strategy": "Recreate"}, []string{
			"rota.canary.enabled and rota.strategy Recreate",
		}},
		{"rota.autoscaling.enabled", true, []string{"without a metric", "cpuUtilization", "oldestWaitingSeconds", "busyWorkersPercent"}},
		{"rota.autoscaling", values{"enabled": true, "cpuUtilization": 50, "minReplicas": 9, "maxReplicas": 5}, []string{
			"rota.autoscaling.minReplicas is 9, above maxReplicas, which is 5",
		}},
		{"rota.serviceAccount", values{"create": false}, []string{
			"rota.serviceAccount.name is empty", "name the ServiceAccount",
		}},
	} {
		_, _, err := example(set(nil, c.path, c.to)).text(chart)
		if err == nil {
			if c.want != nil {
				t.Errorf("%s: %v is accepted", c.path, c.to)
			}
			continue
		}
		if c.want == nil {
			t.Errorf("%s: %v: %v", c.path, c.to, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v: lacks %q:\n%v", c.path, c.to, want, err)
			}
		}
	}
}
