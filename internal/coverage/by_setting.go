package coverage

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Impersonated returns a sentence for each group of members whose clients write as other users.
func Impersonated(reports iter.Seq[*Report]) []string {
	return bySetting(reports, SettingImpersonates, "clients of %s write as other users, by impersonation: %s. The fence "+
		"lets such writes pass, however late they come; the members' logs say where")
}

// Bookmarkless returns a sentence for each group of members that get no bookmarks in watches of some kinds.
func Bookmarkless(reports iter.Seq[*Report]) []string {
	return bySetting(reports, SettingBookmarkless, "%s get no bookmarks in watches of %s, so that each planned move "+
		"costs lists of these kinds")
}

// bySetting returns a sentence, made from the members and the value, for each value of a setting.
func bySetting(reports iter.Seq[*Report], name, sentence string) (out []string) {
	members := map[string][]string{}
	for report := range reports {
		if value := report.Setup[name]; value != "" {
			members[value] = append(members[value], report.Member)
		}
	}
	for _, value := range slices.Sorted(maps.Keys(members)) {
		slices.Sort(members[value])
		out = append(out, fmt.Sprintf(sentence, strings.Join(members[value], ", "), value))
	}
	return out
}
