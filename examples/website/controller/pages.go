package controller

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// Pages are the published pages, one file per Website in a folder: the state outside Kubernetes that an operator
// must not leave behind. Calls for different Websites may be concurrent.
type Pages struct{ Dir string }

// Publish writes the page of a Website unless it is there already.
func (p Pages) Publish(site types.NamespacedName, page []byte) error {
	path := p.path(site)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, page) {
		return nil
	}
	tmp, err := os.CreateTemp(p.Dir, ".page-*")
	if err != nil {
		return fmt.Errorf("publish website %s: %w", site, err)
	}
	_, err = tmp.Write(page)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path) // readers see the old page or the new one
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("publish website %s: %w", site, err)
	}
	return nil
}

// Withdraw removes the page of a Website, if there is one.
func (p Pages) Withdraw(site types.NamespacedName) error {
	if err := os.Remove(p.path(site)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("withdraw website %s: %w", site, err)
	}
	return nil
}

// Published says whether a Website has a page.
func (p Pages) Published(site types.NamespacedName) bool {
	_, err := os.Stat(p.path(site))
	return err == nil
}

// Checksum returns the SHA-256 of a Website's page, in hexadecimal digits; "" where it has none.
func (p Pages) Checksum(site types.NamespacedName) string {
	page, err := os.ReadFile(p.path(site))
	if err != nil {
		return ""
	}
	return checksum(page)
}

func checksum(page []byte) string {
	sum := sha256.Sum256(page)
	return hex.EncodeToString(sum[:])
}

// Names and namespaces hold no underscore, so that no two Websites share a file.
func (p Pages) path(site types.NamespacedName) string {
	return filepath.Join(p.Dir, site.Namespace+"_"+site.Name+".html")
}
