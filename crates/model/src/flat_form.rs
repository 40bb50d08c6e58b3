//! Structs with parts in the code whose stored form is one flat map.
//!
//! `#[serde(flatten)]` is not used for what is stored as MessagePack. It writes the fields of a part
//! one after the other, where the stored order mixes parts. It also reads through a buffer that has
//! forgotten the format, so a value with a text and a binary form, such as an IP address, fails.

/// Implements `Serialize` and `Deserialize` for a struct with parts whose stored form is flat.
///
/// Takes the name of the struct, the fields of the stored form in their order, with their serde
/// attributes, and the struct made of these fields:
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
/// The struct is a pattern when it is written and an expression when it is read. So the compiler
/// rejects a field that one side lacks.
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
                    // Messages about a faulty form contain this name.
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
