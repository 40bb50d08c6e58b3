//! Structs that have parts in the code, but one flat map as their stored form.
//!
//! Values that are stored as MessagePack do not use `#[serde(flatten)]`, for two reasons. It writes
//! the fields of each part together, but the stored order mixes the fields of several parts. It
//! also reads through a buffer that does not know the format. So a value with a text and a binary
//! form, such as an IP address, cannot be read.

/// Implements `Serialize` and `Deserialize` for a struct that has parts but a flat stored form.
///
/// The arguments are the name of the struct, the fields of the stored form, and the struct as built
/// from these fields. The fields are in their stored order and have their serde attributes:
///
/// ```
/// # use remoor_model::flat_form;
/// struct Span { begin: u32, end: u32 }
/// struct Note { text: String, span: Span }
///
/// flat_form! {
///     Note {
///         begin: u32,
///         #[serde(rename = "what")]
///         text: String,
///         #[serde(default)]
///         end: u32,
///     } = Self { text, span: Span { begin, end } }
/// }
///
/// let note: Note = serde_json::from_str(r#"{"begin": 1, "what": "a"}"#).unwrap();
/// assert_eq!(serde_json::to_string(&note).unwrap(), r#"{"begin":1,"what":"a","end":0}"#);
/// ```
///
/// The last argument is used as a pattern for writing and as an expression for reading. So the
/// compiler rejects a field that is missing on one side.
#[macro_export]
macro_rules! flat_form {
    ($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)+ } = $($parts:tt)+) => {
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                #[derive(::serde::Serialize)]
                struct Form<'a> {
                    $($(#[$attribute])* $field: &'a $type,)+
                }
                let $($parts)+ = self;
                ::serde::Serialize::serialize(&Form { $($field),+ }, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                let ($($field,)+) = {
                    // The struct has the name `$name`, because error messages about an invalid form
                    // contain the name.
                    #[derive(::serde::Deserialize)]
                    struct $name {
                        $($(#[$attribute])* $field: $type,)+
                    }
                    let form: $name = ::serde::Deserialize::deserialize(deserializer)?;
                    ($(form.$field,)+)
                };
                ::std::result::Result::Ok($($parts)+)
            }
        }
    };
}
