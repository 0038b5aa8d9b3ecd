package main

import (
	"bytes"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// A file in an image, by its path from the root.
type file struct {
	path string
	mode int64
	text []byte
}

// rootFiles are what an image has besides its program: accounts, so that the user has a name; the authorities that
// browsers trust, for API servers and dispatchers with public certificates (those of a cluster are mounted into Pods);
// and the licenses.
func rootFiles(licenses map[string][]byte) ([]file, error) {
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file cannot express that it is trusted for some certificates only
		}
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	files := []file{
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/none\nnonroot:x:%d:%[1]d:nonroot:/:/none\n", user)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities.Bytes()},
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES"} {
		files = append(files, file{"licenses/" + name, 0o644, licenses[name]})
	}
	return files, nil
}
