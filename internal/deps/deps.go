package deps
import (
 _ "github.com/cespare/xxhash/v2"
 _ "github.com/go-logr/logr"
 _ "github.com/google/go-cmp/cmp"
 _ "github.com/prometheus/client_golang/prometheus"
 _ "github.com/spf13/cobra"
 _ "go.uber.org/goleak"
 _ "k8s.io/api/core/v1"
 _ "k8s.io/client-go/kubernetes"
 _ "k8s.io/client-go/dynamic"
 _ "k8s.io/client-go/metadata"
 _ "k8s.io/client-go/tools/clientcmd"
 _ "k8s.io/utils/clock"
 _ "pgregory.net/rapid"
 _ "sigs.k8s.io/controller-runtime"
 _ "sigs.k8s.io/yaml"
)
