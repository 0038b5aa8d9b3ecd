package split

import (
	"bufio"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/nearest"
)

// A Catalog lists the controllers of one version of kube-controller-manager.
type Catalog struct {
	// Version is the version that the controllers are from, for messages.
	Version string
	names   []string
	off     []string // off by default
}

// Names returns the names of the controllers in order.
func (c Catalog) Names() []string { return slices.Clone(c.names) }

// OffByDefault reports whether "*" leaves out the controller.
func (c Catalog) OffByDefault(name string) bool { return slices.Contains(c.off, name) }

var minorVersion = regexp.MustCompile(`^v?(\d+\.\d+)\.`)

// CatalogOf returns the built-in catalog for a version such as v1.36.3. Controllers come and go with minor versions, so
// it covers every patch of the minor version that was verified, and returns an error for others.
func CatalogOf(version string) (Catalog, error) {
	m := minorVersion.FindStringSubmatch(version)
	if m == nil {
		return Catalog{}, fmt.Errorf("%q is not a version of Kubernetes, such as %s", version, Verified)
	}
	if want := minorVersion.FindStringSubmatch(Verified)[1]; m[1] != want {
		return Catalog{}, fmt.Errorf("the controllers of %s are unknown, since only v%s is built in: save the output of its "+
			"`kube-controller-manager --help` and pass the file with --controllers-list", version, want)
	}
	c := Catalog{Version: version}
	for _, k := range known {
		c.names = append(c.names, k.Name)
		if k.OffByDefault {
			c.off = append(c.off, k.Name)
		}
	}
	return c, nil
}

// ParseHelp parses the catalog from the output of `kube-controller-manager --help`. from names the text in errors and
// messages.
func ParseHelp(from, text string) (Catalog, error) {
	c := Catalog{Version: from}
	scan := bufio.NewScanner(strings.NewReader(text))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		if list, ok := strings.CutPrefix(line, "All controllers: "); ok {
			c.names = names(list)
		}
		if list, ok := strings.CutPrefix(line, "Disabled-by-default controllers: "); ok {
			list, _, _ = strings.Cut(list, " (default")
			c.off = names(list)
		}
	}
	if err := scan.Err(); err != nil {
		return Catalog{}, fmt.Errorf("%s: %w", from, err)
	}
	if len(c.names) == 0 || len(c.off) == 0 {
		return Catalog{}, fmt.Errorf("%s is not the output of `kube-controller-manager --help`: it has no lines "+
			"\"All controllers: …\" and \"Disabled-by-default controllers: …\"", from)
	}
	for _, name := range c.off {
		if !slices.Contains(c.names, name) {
			return Catalog{}, fmt.Errorf("%s: %s is off by default, but not among all controllers", from, name)
		}
	}
	return c, nil
}

func names(list string) []string {
	out := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(out)
	return slices.Compact(out)
}

// resolve returns the version's name of a controller, given its name or an alias, or "".
func (c Catalog) resolve(name string) string {
	for _, s := range spellings(name) {
		if slices.Contains(c.names, s) {
			return s
		}
	}
	return ""
}

// unknown returns the error for a name that the version does not have.
func (c Catalog) unknown(name string) error {
	return fmt.Errorf("no controller of %s is called %q; the nearest name is %s", c.Version, name, c.nearest(name))
}

// nearest returns the controller whose name or alias takes the fewest edits to become name.
func (c Catalog) nearest(name string) string {
	best, least := "", -1
	for _, candidate := range c.names {
		for _, s := range spellings(candidate) {
			if d := nearest.Distance(name, s); least < 0 || d < least {
				best, least = candidate, d
			}
		}
	}
	return best
}
