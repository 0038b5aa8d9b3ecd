package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/front"
)

// known is the last list of servers. It is on disk for an agent that starts while no API server answers.
type known struct {
	Servers []front.Server `json:"servers"`
}

func readKnown(dir string) ([]front.Server, error) {
	path := filepath.Join(dir, front.ServersFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k known
	if err == nil {
		err = yaml.UnmarshalStrict(text, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("the servers last known are not used: %s: %w", path, err)
	}
	return k.Servers, nil
}

func writeKnown(dir string, servers []front.Server) error {
	text, err := yaml.Marshal(known{servers})
	if err != nil {
		return err
	}
	_, err = replace(filepath.Join(dir, front.ServersFile), append([]byte(front.ServersMark), text...))
	return err
}

// replace writes a file atomically: readers see the old text or the new one, even after a power failure. It reports
// whether the text has changed.
func replace(path string, text []byte) (changed bool, err error) {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
		return false, nil
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return false, err
	}
	_, err = fresh.Write(text)
	err = errors.Join(err, fresh.Sync(), fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(fresh.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return true, err
	}
	return true, errors.Join(dir.Sync(), dir.Close())
}
