package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// writeSBOM has syft list what is in an artifact: an archive, or an OCI layout as "oci-dir:PATH" for one platform. syft
// puts the time and a random identifier into each document; here they are the commit's time, and a hash of the rest.
func writeSBOM(ctx context.Context, artifact, document string, flags ...string) error {
	at, err := epoch()
	if err != nil {
		return err
	}
	name := filepath.Base(document)
	args := append([]string{"scan", artifact, "--quiet", "--output", "spdx-json", "--source-name", name}, flags...)
	cmd := exec.CommandContext(ctx, "syft", args...)
	cmd.Env = append(os.Environ(), "SYFT_CHECK_FOR_APP_UPDATE=false")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("syft %s: %w\n%s", artifact, err, errors.String())
	}
	fixed, err := stable(out, name, at)
	if err != nil {
		return fmt.Errorf("the SBOM of %s: %w", artifact, err)
	}
	return os.WriteFile(document, fixed, 0o644) // it is for everybody
}

// stable makes an SPDX document the same each time.
func stable(text []byte, name string, at time.Time) ([]byte, error) {
	var document map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&document); err != nil {
		return nil, err
	}
	creation, ok := document["creationInfo"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("no creationInfo in a document of %v", document["spdxVersion"])
	}
	creation["created"] = at.Format(time.RFC3339)
	delete(document, "documentNamespace")
	rest, err := json.Marshal(document) // with its keys in order
	if err != nil {
		return nil, err
	}
	document["documentNamespace"] = fmt.Sprintf("https://github.com/rota-dev/rota/spdx/%s-%x", name, sha256.Sum256(rest))
	out, err := json.MarshalIndent(document, "", " ")
	return append(out, '\n'), err
}
