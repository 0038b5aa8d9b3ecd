package report

import (
	"math"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/planner"
)

// Loads returns the loads of slots and the canary results in reports, for planners (rules R21 and R22).
func Loads(reports []*coverage.Report) []planner.LoadReport {
	out := make([]planner.LoadReport, 0, len(reports))
	for _, report := range reports {
		one := planner.LoadReport{
			ID: report.Member, Serial: report.Serial, Open: report.Open,
			ByLoad: report.Setup[coverage.SettingBalance] == coverage.BalanceLoad,
		}
		for _, l := range report.Loads {
			one.Loads = append(one.Loads, planner.Busy{Slots: l.Slots, Workers: int64(math.Round(1000 * l.Workers))})
		}
		if of := report.Trial; of != nil {
			one.Trial = &planner.Trial{Build: of.Build, Began: of.Began, Step: of.Step, Side: of.Side}
		}
		out = append(out, one)
	}
	return out
}
