package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Artifact Hub looks for metadata of a repository of charts under this tag, with these media types.
const (
	hubTag    = "artifacthub.io"
	hubConfig = types.MediaType("application/vnd.cncf.artifacthub.config.v1+yaml")
	hubLayer  = types.MediaType("application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml")
)

// pushHubMetadata puts a file artifacthub-repo.yml beside the chart at ref.
func pushHubMetadata(ctx context.Context, ref, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	repository, err := name.NewRepository(ref)
	if err != nil {
		return fmt.Errorf("repository %s: %w", ref, err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), hubConfig)
	layer := mutate.Addendum{Layer: static.NewLayer(text, hubLayer), History: v1.History{CreatedBy: path}}
	img, err = mutate.Append(img, layer)
	if err != nil {
		return err
	}
	return remote.Write(repository.Tag(hubTag), img, remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain))
}
