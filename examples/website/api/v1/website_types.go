package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer is on protected Websites until they are no longer published.
const Finalizer = "web.example.com/published"

const (
	// ConditionPublished is true when the Website is published as its generation in the condition says.
	ConditionPublished = "Published"
	// ConditionCertificateFound is there on Websites with spec.secretName, and true when that Secret has a certificate.
	ConditionCertificateFound = "CertificateFound"
)

// WebsiteSpec is what the user wants to be published.
type WebsiteSpec struct {
	// Title is the headline of the page.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Title string `json:"title"`
	// Content is the text of the page.
	// +optional
	Content string `json:"content,omitempty"`
	// Protected Websites carry a finalizer, so that their deletion waits until they are no longer published.
	// +optional
	Protected bool `json:"protected,omitempty"`
	// Replicas is the number of Pods that serve the page.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// SecretName names a Secret of type kubernetes.io/tls in the Website's namespace. With it the page is served over
	// HTTPS, with the certificate in the Secret; several Websites may use one.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// WebsiteStatus is what has been published.
type WebsiteStatus struct {
	// ObservedGeneration is the generation that the operator dealt with last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Checksum is the SHA-256 of the published page, in hexadecimal digits.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// Conditions have the types Published and CertificateFound.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Website is a page to be published, and served by a Deployment and a Service of its name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be good for a Service: at most 63 lower-case letters, digits and hyphens"
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.spec.title`
// +kubebuilder:printcolumn:name="Published",type=string,JSONPath=`.status.conditions[?(@.type=="Published")].status`
// +kubebuilder:printcolumn:name="Protected",type=boolean,JSONPath=`.spec.protected`,priority=1
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.secretName`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec"`
	Status WebsiteStatus `json:"status,omitempty"`
}

// WebsiteList is a list of Websites.
//
// +kubebuilder:object:root=true
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Website `json:"items"`
}
